"""TensorBoard's event files, read back with protocol buffers' own library and the format's published messages."""

import struct

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from h2fdp.records.events import EventFile, crc32c

FIELD = descriptor_pb2.FieldDescriptorProto
MESSAGES = {  # tensorflow/core/util/event.proto, framework/summary.proto: the fields that scalars need
    "Value": [("tag", 1, FIELD.TYPE_STRING), ("simple_value", 2, FIELD.TYPE_FLOAT)],
    "Summary": [("value", 1, "Value")],
    "Event": [
        ("wall_time", 1, FIELD.TYPE_DOUBLE),
        ("step", 2, FIELD.TYPE_INT64),
        ("file_version", 3, FIELD.TYPE_STRING),
        ("summary", 5, "Summary"),
    ],
}


@pytest.fixture(scope="module")
def event():
    """The class of events."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="t", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            added = message.field.add(name=field, number=number, label=FIELD.LABEL_OPTIONAL)
            if isinstance(kind, str):
                added.type, added.type_name = FIELD.TYPE_MESSAGE, f".t.{kind}"
                if kind == "Value":
                    added.label = FIELD.LABEL_REPEATED
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Event"))


def unmasked(stored):
    """The published inverse of the mask."""
    rotated = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def records(content):
    while content:
        length, check = struct.unpack("<QI", content[:12])
        data, (data_check,) = content[12 : 12 + length], struct.unpack("<I", content[12 + length : 16 + length])
        assert unmasked(check) == crc32c(content[:8])
        assert unmasked(data_check) == crc32c(data)
        yield data
        content = content[16 + length :]


def read(event, path):
    return [event.FromString(data) for data in records(path.read_bytes())]


def test_the_checksum_is_the_published_one():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_scalars_are_events_of_their_step(tmp_path, event):
    file = EventFile(tmp_path / "tensorboard" / "events", [(10.0, 1, {"accuracy": 0.5})])
    file.add(12.5, 300, {"accuracy": 0.75, "a loss": 2.0})
    version, first, second = read(event, tmp_path / "tensorboard" / "events")
    assert version.file_version == "brain.Event:2"
    assert (first.wall_time, first.step, [(each.tag, each.simple_value) for each in first.summary.value]) == (
        10.0,
        1,
        [("accuracy", 0.5)],
    )
    assert (second.wall_time, second.step) == (12.5, 300)
    assert {each.tag: each.simple_value for each in second.summary.value} == {"accuracy": 0.75, "a loss": 2.0}


def test_opened_again_a_file_holds_what_stands(tmp_path, event):
    EventFile(tmp_path / "events", [(float(step), step, {"x": 1.0}) for step in (1, 2, 3)])
    EventFile(tmp_path / "events", [(1.0, 1, {"x": 1.0})]).add(2.0, 2, {"x": 5.0})
    assert [each.step for each in read(event, tmp_path / "events")] == [0, 1, 2]
