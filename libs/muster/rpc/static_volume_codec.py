"""Static volumes and claims for them as messages and back."""

from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import StaticClaim, StaticVolume
from muster.rpc.pod_class_codec import decode_required, encode_required


def encode_static_volume(volume: StaticVolume) -> pb.StaticVolume:
    return pb.StaticVolume(
        name=volume.name,
        storage_class=volume.storage_class,
        size_bytes=volume.size_bytes,
        access_modes=volume.access_modes,
        volume_mode=volume.volume_mode,
        region=map(encode_required, volume.region),
        claim=volume.claim,
    )


def decode_static_volume(message: pb.StaticVolume) -> StaticVolume:
    return StaticVolume(
        message.name,
        message.storage_class,
        message.size_bytes,
        tuple(message.access_modes),
        message.volume_mode,
        tuple(map(decode_required, message.region)),
        message.claim,
    )


def encode_static_claim(claim: StaticClaim) -> pb.StaticClaim:
    return pb.StaticClaim(
        id=claim.id,
        storage_class=claim.storage_class,
        size_bytes=claim.size_bytes,
        access_modes=claim.access_modes,
        volume_mode=claim.volume_mode,
    )


def decode_static_claim(message: pb.StaticClaim) -> StaticClaim:
    return StaticClaim(
        message.id, message.storage_class, message.size_bytes, tuple(message.access_modes), message.volume_mode
    )
