//! Writing pcapng, the capture format of Wireshark: one section, one interface of raw IP packets, nanosecond
//! timestamps. (draft-ietf-opsawg-pcapng; three block types are all it takes, so no package.)

use std::io::{self, Write};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// Packets begin with the IP header.
const LINKTYPE_RAW: u32 = 101;

const OPTION_END: u16 = 0;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_TIMESTAMP_RESOLUTION: u16 = 9;
const OPTION_PACKET_FLAGS: u16 = 2;

/// Which way a packet went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Inbound = 1,
    Outbound = 2,
}

/// Writes the blocks that begin a file.
pub(super) fn write_head(out: &mut impl Write, interface_name: &str) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4d_u32.to_le_bytes()); // byte order
    body.extend(1_u16.to_le_bytes()); // version 1.0
    body.extend(0_u16.to_le_bytes());
    body.extend(u64::MAX.to_le_bytes()); // section length: not told
    write_block(out, SECTION_HEADER, &body)?;

    body.clear();
    body.extend(LINKTYPE_RAW.to_le_bytes()); // and two reserved bytes
    body.extend(0_u32.to_le_bytes()); // no snap length
    push_option(&mut body, OPTION_IF_NAME, interface_name.as_bytes());
    push_option(&mut body, OPTION_IF_TIMESTAMP_RESOLUTION, &[9]); // 10^-9 s
    push_option(&mut body, OPTION_END, &[]);
    write_block(out, INTERFACE_DESCRIPTION, &body)
}

/// Writes one IP packet; `time_ns` counts from 1970.
pub(super) fn write_packet(
    out: &mut impl Write,
    time_ns: u64,
    direction: Direction,
    packet: &[u8],
) -> io::Result<()> {
    let length = packet.len() as u32;
    let mut body = Vec::with_capacity(packet.len() + 40);
    body.extend(0_u32.to_le_bytes()); // the interface
    body.extend(((time_ns >> 32) as u32).to_le_bytes());
    body.extend((time_ns as u32).to_le_bytes());
    body.extend(length.to_le_bytes()); // captured
    body.extend(length.to_le_bytes()); // original
    body.extend(packet);
    pad(&mut body);
    push_option(&mut body, OPTION_PACKET_FLAGS, &(direction as u32).to_le_bytes());
    push_option(&mut body, OPTION_END, &[]);
    write_block(out, ENHANCED_PACKET, &body)
}

fn write_block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(body)?;
    out.write_all(&length)
}

fn push_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}
