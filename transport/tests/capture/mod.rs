//! The golden captures: where they are, and the frames in one.

use std::path::{Path, PathBuf};

use pumice_transport::wire::LinkType;

/// Their folder.
pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden")
}

/// Link type and frames of a little-endian pcap file with microseconds.
pub(crate) fn frames(file: &[u8]) -> (LinkType, Vec<&[u8]>) {
    let (header, mut rest) = file.split_first_chunk::<24>().expect("a pcap header");
    assert_eq!(header[..4], [0xd4, 0xc3, 0xb2, 0xa1], "pcap magic");
    let link = u32::from_le_bytes(*header.last_chunk().unwrap());
    let mut frames = Vec::new();
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let captured = u32::from_le_bytes(record[8..12].try_into().unwrap());
        assert_eq!(captured.to_le_bytes(), record[12..], "no frame is cut off");
        let (frame, after) = after.split_at(captured as usize);
        frames.push(frame);
        rest = after;
    }
    assert!(rest.is_empty(), "the file ends with a whole frame");
    (LinkType::from_pcap(link).expect("a known link type"), frames)
}
