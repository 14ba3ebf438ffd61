#!/usr/bin/env python3
"""A second opinion on RoCE frames, written from the specification and sharing nothing with the data plane.

Decodes a pcap or pcapng file and checks what can be checked from outside: the lengths of IP, UDP and payload against each other, the
IPv4 checksum, opcode and header sizes, pad count, and the invariant CRC (IBTA vol. 1, 7.8.1 and annex A17.4.4) by zlib.crc32.

usage: roce_oracle.py FILE [--summary] [--expect-bad-icrc N]      exit 1: a frame is malformed or its ICRC wrong
"""

import argparse
import collections
import json
import struct
import sys
import zlib

# Table 38 of the specification, by service bits and operation; the value is the list of headers after the BTH.
_RELIABLE = {
    0x00: ("SEND First", ""), 0x01: ("SEND Middle", ""), 0x02: ("SEND Last", ""),
    0x03: ("SEND Last with Immediate", "imm"), 0x04: ("SEND Only", ""),
    0x05: ("SEND Only with Immediate", "imm"), 0x06: ("RDMA WRITE First", "reth"),
    0x07: ("RDMA WRITE Middle", ""), 0x08: ("RDMA WRITE Last", ""),
    0x09: ("RDMA WRITE Last with Immediate", "imm"), 0x0A: ("RDMA WRITE Only", "reth"),
    0x0B: ("RDMA WRITE Only with Immediate", "reth imm"), 0x0C: ("RDMA READ Request", "reth"),
    0x0D: ("RDMA READ response First", "aeth"), 0x0E: ("RDMA READ response Middle", ""),
    0x0F: ("RDMA READ response Last", "aeth"), 0x10: ("RDMA READ response Only", "aeth"),
    0x11: ("Acknowledge", "aeth"), 0x12: ("ATOMIC Acknowledge", "aeth atomicack"),
    0x13: ("CmpSwap", "atomic"), 0x14: ("FetchAdd", "atomic"),
    0x16: ("SEND Last with Invalidate", "ieth"), 0x17: ("SEND Only with Invalidate", "ieth"),
}
OPCODES = {code: ("RC " + name, parts.split()) for code, (name, parts) in _RELIABLE.items()}
OPCODES.update({0x20 + code: ("UC " + _RELIABLE[code][0], _RELIABLE[code][1].split())
                for code in range(0x0C)})
OPCODES.update({0x64: ("UD SEND Only", ["deth"]),
                0x65: ("UD SEND Only with Immediate", ["deth", "imm"]),
                0x81: ("CNP", ["cnp"])})
SIZES = {"reth": 16, "aeth": 4, "atomic": 28, "atomicack": 8, "imm": 4, "ieth": 4, "deth": 8, "cnp": 16}


class Malformed(Exception):
    pass


def frames_of(data):
    """Yields (number, frame bytes) of a pcap or pcapng file."""
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        yield from _frames_of_pcapng(data)
        return
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at, number = 24, 0
    while at + 16 <= len(data):
        captured, original = struct.unpack_from(order + "II", data, at + 8)
        number += 1
        if captured < original:
            raise Malformed(f"frame {number} was cut by the capture")
        yield number, data[at + 16:at + 16 + captured]
        at += 16 + captured


def _frames_of_pcapng(data):
    order = "<" if data[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    at, number = 0, 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from(order + "II", data, at)
        if kind == 6:
            captured = struct.unpack_from(order + "I", data, at + 20)[0]
            number += 1
            yield number, data[at + 28:at + 28 + captured]
        at += length


def ones_complement(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def locate(frame):
    """(network header, its length, BTH and after) of a RoCE frame, or None when it is something else."""
    kind, at = struct.unpack_from("!H", frame, 12)[0], 14
    if kind == 0x8100:
        kind, at = struct.unpack_from("!H", frame, 16)[0], 18
    if kind == 0x0800:
        header = frame[at:at + 20]
        if len(header) < 20 or header[9] != 17:
            return None
        total = struct.unpack_from("!H", header, 2)[0]
        udp = frame[at + 20:at + total]
        if len(udp) < 8 or struct.unpack_from("!H", udp, 2)[0] != 4791:
            return None
        if header[0] != 0x45:
            raise Malformed("IPv4 options")
        if ones_complement(header) != 0xFFFF:
            raise Malformed("IPv4 checksum")
        if struct.unpack_from("!H", udp, 4)[0] != len(udp):
            raise Malformed("UDP length")
        return frame[at:at + 28], udp[8:]
    if kind == 0x86DD:
        length = struct.unpack_from("!H", frame, at + 4)[0]
        if frame[at + 6] != 17:
            return None
        udp = frame[at + 40:at + 40 + length]
        if len(udp) < 8 or struct.unpack_from("!H", udp, 2)[0] != 4791:
            return None
        if struct.unpack_from("!H", udp, 4)[0] != length or len(udp) != length:
            raise Malformed("UDP length")
        return frame[at:at + 48], udp[8:]
    if kind == 0x8915:
        length = struct.unpack_from("!H", frame, at + 4)[0]
        if frame[at + 6] != 0x1B:
            raise Malformed("GRH next header")
        return frame[at:at + 40], frame[at + 40:at + 40 + length]
    return None


def invariant_crc(network, transport):
    """CRC-32 with everything that a router may change taken as ones, after eight bytes of ones for the LRH."""
    masked = bytearray(network)
    if masked[0] >> 4 == 4:
        for i in (1, 8, 10, 11, 26, 27):
            masked[i] = 0xFF
    else:
        masked[0] |= 0x0F
        for i in (1, 2, 3, 7):
            masked[i] = 0xFF
        if len(masked) == 48:
            masked[46] = masked[47] = 0xFF
    body = bytearray(transport[:-4])
    body[4] = 0xFF
    return zlib.crc32(bytes(8 * [0xFF]) + bytes(masked) + bytes(body))


def decode(frame):
    """A dict of what the frame says, or None when it is not RoCE. Raises Malformed."""
    found = locate(frame)
    if found is None:
        return None
    network, transport = found
    if len(transport) < 16:
        raise Malformed("no room for BTH and ICRC")
    opcode, flags, pkey, qpn_word, psn_word = struct.unpack_from("!BBHII", transport)
    if opcode not in OPCODES:
        raise Malformed(f"opcode {opcode:#x}")
    name, parts = OPCODES[opcode]
    at, headers = 12, {}
    for part in parts:
        headers[part] = transport[at:at + SIZES[part]]
        at += SIZES[part]
    pad = flags >> 4 & 3
    payload = len(transport) - at - 4 - pad
    if payload < 0 or (payload + pad) % 4:
        raise Malformed("payload and pad")
    out = {"opcode": name, "dest_qp": qpn_word & 0xFFFFFF, "psn": psn_word & 0xFFFFFF,
           "ack_req": psn_word >> 31, "solicited": flags >> 7, "mig_req": flags >> 6 & 1,
           "tver": flags & 15, "pkey": pkey, "payload": payload, "pad": pad}
    if "aeth" in headers:
        out["syndrome"] = headers["aeth"][0]
        out["msn"] = int.from_bytes(headers["aeth"][1:], "big")
    if "reth" in headers:
        va, rkey, length = struct.unpack("!QII", headers["reth"])
        out.update(va=va, rkey=rkey, length=length)
    out["icrc_ok"] = struct.unpack_from("<I", transport, len(transport) - 4)[0] == \
        invariant_crc(network, transport)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--summary", action="store_true", help="counts instead of one JSON line a frame")
    parser.add_argument("--expect-bad-icrc", type=int, default=0, metavar="N",
                        help="so many frames were corrupted on purpose: neither more nor less is right")
    given = parser.parse_args()
    counts, bad, malformed, others = collections.Counter(), 0, [], 0
    with open(given.file, "rb") as f:
        data = f.read()
    for number, frame in frames_of(data):
        try:
            packet = decode(frame)
        except (Malformed, struct.error) as error:
            malformed.append(f"frame {number}: {error}")
            continue
        if packet is None:
            others += 1
            continue
        counts[packet["opcode"]] += 1
        bad += not packet["icrc_ok"]
        if not given.summary:
            print(json.dumps({"frame": number, **packet}))
    if given.summary:
        for name, count in sorted(counts.items()):
            print(f"{count:8} {name}")
        print(f"{others:8} not RoCE\n{bad:8} with a wrong ICRC\n{len(malformed):8} malformed")
    for line in malformed[:10]:
        print(line, file=sys.stderr)
    if given.expect_bad_icrc:
        return 0 if bad + len(malformed) == given.expect_bad_icrc else 1
    return 1 if bad or malformed or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
