"""Traces: JSON lines and CSV, defaults, and errors that name the line and quote the value."""

from pathlib import Path

import pytest

from muster.forecast.submissions import BadTrace, Submission, as_row, read_trace
from muster.forecast.suite import trace_lines
from muster.gangs.facts import LevelConstraint, LevelPolicy

LINE = '{"time": 5, "gang": "ml/a", "members": 8, "requests": "cpu=4,nvidia.com/gpu=1", "duration": 60'


def written(path: Path, *lines: str, name: str = "trace.jsonl") -> Path:
    file = path / name
    file.write_text("\n".join(lines))
    return file


def test_a_line_is_a_gang(tmp_path: Path) -> None:
    [gang] = read_trace(written(tmp_path, LINE + ', "priority": 7, "topology": "rack: hard pack", "minimum": 4}'))

    assert gang == Submission(
        at_seconds=5.0,
        namespace="ml",
        name="a",
        members=8,
        requests=(("cpu", 4000), ("nvidia.com/gpu", 1), ("pods", 1)),
        duration_seconds=60.0,
        priority=7,
        topology="rack: hard pack",
        minimum=4,
    )
    assert gang.constraints == (LevelConstraint("rack", LevelPolicy.PACK, hard=True),)


def test_a_csv_file_has_the_same_fields(tmp_path: Path) -> None:
    header, row = "time,gang,members,requests,duration,priority", '5,a,2,"cpu=1,memory=1Gi",60,'
    [gang] = read_trace(written(tmp_path, header, row, name="trace.csv"))

    assert (gang.id, gang.members, gang.priority) == ("default/a", 2, 0)
    assert gang.requests == (("cpu", 1000), ("memory", 1 << 30), ("pods", 1))


def test_gangs_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    later, earlier = LINE + "}", LINE.replace("5", "1").replace("ml/a", "ml/b") + "}"

    assert [gang.name for gang in read_trace(written(tmp_path, later, "", earlier))] == ["b", "a"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    [gang] = read_trace(written(tmp_path, LINE + ', "topology": "rack: soft pack"}'))

    assert read_trace(written(tmp_path, *trace_lines([gang]))) == [gang]
    assert as_row(gang)["requests"] == {"cpu": "4000m", "nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: [1] is not a JSON object"),
        ('{"time": 1}', "no field gang, members, requests, duration"),
        (LINE + ', "gpus": 8}', 'unknown field "gpus"'),
        (LINE.replace("8", "0") + "}", "members 0 is not a whole number from 1 to 100000"),
        (LINE.replace("8", '"many"') + "}", 'members "many" is not a whole number'),
        (LINE.replace("60", "-1") + "}", "duration -1 is not a number of seconds"),
        (LINE.replace("60", '"nan"') + "}", 'duration "nan" is not a number of seconds'),
        (LINE.replace("cpu=4,", "cpu,") + "}", '"cpu" is not NAME=AMOUNT'),
        (LINE.replace("cpu=4", "cpu=four") + "}", "four"),
        (LINE.replace("ml/a", "/a") + "}", '"/a" is not NAME or NAMESPACE/NAME'),
        (LINE + ', "topology": "rack: tight"}', "tight"),
        (LINE + ', "minimum": 9}', "minimum 9 is not a whole number from 0 to 8"),
    ],
)
def test_a_bad_line_is_an_error_that_quotes_it(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(BadTrace) as raised:
        read_trace(written(tmp_path, line))

    assert "line 1" in str(raised.value)
    assert message in str(raised.value)


def test_a_name_may_be_used_once(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match=r'line 2: gang "ml/a" was submitted before'):
        read_trace(written(tmp_path, LINE + "}", LINE + "}"))
