"""Describes the assumptions of expected starts."""

from muster.forecast.v1 import forecast_pb2 as pb


def assumption(starts: pb.StartsResponse) -> str:
    """Describes the assumptions: nothing is submitted, how the ends of running pods are known, and what ranges are."""
    ends = starts.assumptions
    known = [f"{ends.declared} declare how long they run"] if ends.declared else []
    known += [f"{ends.learnt} are taken to run as long as earlier ones of their owner did"] if ends.learnt else []
    known += [f"the ends of {ends.unknown} are not known, and taken not to come"] if ends.unknown else []
    pods = (
        f"of {ends.declared + ends.learnt + ends.unknown} running pods {', '.join(known)}" if known else "no pod runs"
    )
    share = (
        f" Of earlier starts {starts.range_share:.0%} were in such ranges."
        if starts.range_share
        else " Ranges are those of short and long run lengths."
    )
    more = " Not all was found in time: give more with --limit, or with forecast's --max-seconds."
    return f"Assumed: nobody submits anything else; {pods}.{share}{more if starts.partial else ''}"
