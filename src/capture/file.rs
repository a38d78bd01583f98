//! Reads the frames of a capture file, pcapng or pcap, which its first bytes distinguish.

use std::io::{Cursor, Read};
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};

/// A captured frame.
pub(crate) struct Frame<'a> {
    /// Time since the file's epoch: 1970, or the beginning of virtual time.
    pub(crate) time: Duration,
    /// Link type number of the tcpdump registry.
    pub(crate) link_type: u32,
    /// Bytes of the frame that the capture kept.
    pub(crate) bytes: &'a [u8],
    /// Length of the frame in bytes; more than was kept if the capture cut it.
    pub(crate) original_bytes: usize,
    /// Direction, if the capture has it: true if the frame was captured where it was sent.
    pub(crate) is_outbound: Option<bool>,
    /// Comments of the capture on the frame.
    pub(crate) comments: Vec<&'a str>,
}

impl Frame<'_> {
    /// Reports whether the capture kept less than the whole frame.
    pub(crate) fn is_cut(&self) -> bool {
        self.bytes.len() < self.original_bytes
    }
}

/// Recognizes a capture by its first bytes: true for pcapng, false for pcap, `None` for anything else.
fn is_pcapng(magic: &[u8]) -> Option<bool> {
    match magic {
        [0x0a, 0x0d, 0x0d, 0x0a] => Some(true),
        [0xa1, 0xb2, 0xc3, 0xd4]
        | [0xd4, 0xc3, 0xb2, 0xa1]
        | [0xa1, 0xb2, 0x3c, 0x4d]
        | [0x4d, 0x3c, 0xb2, 0xa1] => Some(false),
        _ => None,
    }
}

/// Reports whether a file that begins with these four bytes is a capture.
pub(crate) fn is_capture(magic: &[u8]) -> bool {
    is_pcapng(magic).is_some()
}

/// Calls `each` with every frame of a capture, in order.
///
/// # Errors
/// `FrameError::Broken` if the input is no capture or is damaged (`each` has been called for the frames
/// before the damage), and the error that `each` returned.
pub(crate) fn for_each_frame<E>(
    mut input: impl Read,
    mut each: impl FnMut(&Frame<'_>) -> Result<(), E>,
) -> Result<(), FrameError<E>> {
    let mut magic = Vec::with_capacity(4);
    input.by_ref().take(4).read_to_end(&mut magic).map_err(|error| FrameError::Broken(error.to_string()))?;
    let Some(pcapng) = is_pcapng(&magic) else {
        return Err(FrameError::Broken("it is neither a pcapng nor a pcap file".to_owned()));
    };
    let input = Cursor::new(magic).chain(input);
    if pcapng { pcapng_frames(input, &mut each) } else { pcap_frames(input, &mut each) }
}

/// The reason why reading stopped early.
#[derive(Debug)]
pub(crate) enum FrameError<E> {
    /// The file is damaged; the text says how.
    Broken(String),
    /// The callback returned this error.
    Callback(E),
}

impl<E> From<PcapError> for FrameError<E> {
    fn from(error: PcapError) -> FrameError<E> {
        FrameError::Broken(match error {
            PcapError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                "it ends in the middle of a packet".to_owned()
            }
            PcapError::IoError(error) => error.to_string(),
            PcapError::InvalidField(what) => format!("it is damaged ({what})"),
            other => format!("it is damaged ({other})"),
        })
    }
}

fn pcap_frames<E>(
    input: impl Read,
    each: &mut impl FnMut(&Frame<'_>) -> Result<(), E>,
) -> Result<(), FrameError<E>> {
    let mut reader = PcapReader::new(input)?;
    let header = reader.header();
    let fraction_ns = if header.ts_resolution == TsResolution::NanoSecond { 1 } else { 1000 };
    // The raw packets are read: the reader would refuse a packet that the snap length cut.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet?;
        let seconds = Duration::from_secs(u64::from(packet.ts_sec));
        let frame = Frame {
            time: seconds + Duration::from_nanos(u64::from(packet.ts_frac) * fraction_ns),
            link_type: header.datalink.into(),
            bytes: &packet.data,
            original_bytes: packet.orig_len as usize,
            is_outbound: None,
            comments: Vec::new(),
        };
        each(&frame).map_err(FrameError::Callback)?;
    }
    Ok(())
}

/// The properties of an interface that a packet block depends on.
#[derive(Clone, Copy)]
struct CaptureInterface {
    link_type: u32,
    /// `if_tsresol`: units per second are 10^n, or 2^(n & 0x7f) with the top bit set.
    resolution: u8,
    /// `if_tsoffset`, seconds.
    offset: u64,
}

impl CaptureInterface {
    fn new(block: &InterfaceDescriptionBlock<'_>) -> CaptureInterface {
        let mut interface = CaptureInterface { link_type: block.linktype.into(), resolution: 6, offset: 0 };
        for option in &block.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(resolution) => interface.resolution = *resolution,
                InterfaceDescriptionOption::IfTsOffset(seconds) => interface.offset = *seconds,
                _ => {}
            }
        }
        interface
    }

    /// Time of a timestamp in the interface's own units; saturates where a damaged file leaves the
    /// range.
    fn time(self, ticks: u64) -> Duration {
        let exponent = u32::from(self.resolution & 0x7f);
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        let ns = match base.checked_pow(exponent) {
            Some(per_second) => u128::from(ticks) * 1_000_000_000 / per_second,
            None => 0,
        };
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        Duration::from_nanos(ns).saturating_add(Duration::from_secs(self.offset))
    }
}

fn pcapng_frames<E>(
    input: impl Read,
    each: &mut impl FnMut(&Frame<'_>) -> Result<(), E>,
) -> Result<(), FrameError<E>> {
    let mut reader = PcapNgReader::new(input)?;
    let mut interfaces: Vec<CaptureInterface> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block? {
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(block) => interfaces.push(CaptureInterface::new(&block)),
            Block::EnhancedPacket(packet) => {
                let Some(interface) = interfaces.get(packet.interface_id as usize) else {
                    return Err(FrameError::Broken(format!(
                        "a packet names interface {}, which the file does not describe",
                        packet.interface_id
                    )));
                };
                // The reader gives the raw 64-bit count as nanoseconds, whatever the unit is.
                let ticks = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
                let frame = Frame {
                    time: interface.time(ticks),
                    link_type: interface.link_type,
                    bytes: &packet.data,
                    original_bytes: packet.original_len as usize,
                    is_outbound: packet.options.iter().find_map(is_outbound),
                    comments: packet.options.iter().filter_map(comment).collect(),
                };
                each(&frame).map_err(FrameError::Callback)?;
            }
            Block::SimplePacket(packet) => {
                let length = packet.data.len().min(packet.original_len as usize);
                let frame = Frame {
                    time: Duration::ZERO,
                    link_type: interfaces.first().map_or(u32::from(DataLink::ETHERNET), |i| i.link_type),
                    bytes: packet.data.get(..length).unwrap_or_default(),
                    original_bytes: packet.original_len as usize,
                    is_outbound: None,
                    comments: Vec::new(),
                };
                each(&frame).map_err(FrameError::Callback)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the direction in the flags option: the two lowest bits are 1 for inbound and 2 for outbound.
fn is_outbound(option: &EnhancedPacketOption<'_>) -> Option<bool> {
    let EnhancedPacketOption::Flags(flags) = option else { return None };
    match flags & 3 {
        1 => Some(false),
        2 => Some(true),
        _ => None,
    }
}

/// Returns the text of a comment option.
fn comment<'a>(option: &'a EnhancedPacketOption<'_>) -> Option<&'a str> {
    if let EnhancedPacketOption::Comment(text) = option { Some(text) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(Duration, u32, Vec<u8>, bool)>;

    fn frames(file: &[u8]) -> (Seen, Result<(), FrameError<()>>) {
        let mut seen = Vec::new();
        let end = for_each_frame(file, |frame| {
            seen.push((frame.time, frame.link_type, frame.bytes.to_vec(), frame.is_cut()));
            Ok(())
        });
        (seen, end)
    }

    /// Little-endian pcapng: a section, an interface (raw IP, nanoseconds) and one packet block.
    fn pcapng(resolution: u8, ticks: u64) -> Vec<u8> {
        let mut file = Vec::new();
        let words = |file: &mut Vec<u8>, words: &[u32]| {
            for word in words {
                file.extend_from_slice(&word.to_le_bytes());
            }
        };
        words(&mut file, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
        words(&mut file, &[1, 32, 101, 0, 1 << 16 | 9, u32::from(resolution), 0, 32]);
        words(&mut file, &[6, 36, 0, (ticks >> 32) as u32, ticks as u32, 3, 5, 0x00cc_bbaa, 36]);
        file
    }

    #[test]
    fn the_interfaces_unit_of_time_is_applied() {
        let (seen, end) = frames(&pcapng(9, 1_500_000_000));
        assert!(end.is_ok());
        let bytes = vec![0xaa, 0xbb, 0xcc];
        assert_eq!(seen, [(Duration::from_millis(1500), 101, bytes, true)]);
        assert_eq!(frames(&pcapng(6, 1_500_000)).0[0].0, Duration::from_millis(1500));
        assert_eq!(frames(&pcapng(0x8a, 1536)).0[0].0, Duration::from_millis(1500));
        assert_eq!(frames(&pcapng(0x7f, 1)).0[0].0, Duration::ZERO);
    }

    #[test]
    fn a_pcap_in_either_byte_order_is_read() {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 2 << 16 | 4, 0, 0, 65535, 1, 7, 500_000, 2, 2] {
            file.extend_from_slice(&word.to_be_bytes());
        }
        file.extend_from_slice(&[1, 2]);
        let (seen, end) = frames(&file);
        assert!(end.is_ok());
        assert_eq!(seen, [(Duration::from_millis(7500), 1, vec![1, 2], false)]);
    }

    #[test]
    fn what_comes_before_the_damage_is_handed_out() {
        let original = pcapng(9, 0);
        for length in 0..original.len() {
            let (seen, end) = frames(&original[..length]);
            assert!(seen.is_empty());
            // A file may end after any whole block.
            assert_eq!(end.is_ok(), length == 28 || length == 60, "cut at {length}");
        }
        let mut file = original.clone();
        file.extend_from_slice(&original[60..70]);
        let (seen, end) = frames(&file);
        assert_eq!(seen.len(), 1);
        assert!(matches!(end, Err(FrameError::Broken(text)) if text.contains("ends in the middle")));
    }

    #[test]
    fn no_flipped_byte_makes_the_reader_panic() {
        let original = pcapng(9, 77);
        for index in 0..original.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut file = original.clone();
                file[index] = value;
                let _ = frames(&file);
            }
        }
    }
}
