//! Golden packets for the tests: whole IP packets with their ICRC.
//!
//! V1–V7 were made with scapy and recomputed by an independent bitwise implementation (V6 and V7 are
//! the packets of scapy's own tests); V8 was captured from a ConnectX-4 Lx.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::icrc;
use crate::path::Flow;

/// An IP packet with the facts that tests compare.
#[derive(Clone)]
pub(super) struct Vector {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    ip_header_bytes: usize,
}

impl Vector {
    fn new(name: &'static str, hex: &str) -> Vector {
        let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
        let (pairs, odd) = hex.as_bytes().as_chunks::<2>();
        assert!(odd.is_empty());
        let bytes: Vec<u8> = pairs.iter().map(|&[high, low]| digit(high) << 4 | digit(low)).collect();
        let ip_header_bytes = if bytes[0] >> 4 == 4 { 20 } else { 40 };
        Vector { name, bytes, ip_header_bytes }
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.ip_header_bytes == 20
    }

    pub(super) fn ip_header(&self) -> &[u8] {
        &self.bytes[..self.ip_header_bytes]
    }

    pub(super) fn udp_header(&self) -> &[u8] {
        &self.bytes[self.ip_header_bytes..self.ip_header_bytes + 8]
    }

    /// Returns the packet from BTH to ICRC.
    pub(super) fn packet(&self) -> &[u8] {
        &self.bytes[self.ip_header_bytes + 8..]
    }

    pub(super) fn verify_with_header(&self) -> bool {
        icrc::verify_with_header(self.ip_header(), self.udp_header(), self.packet())
    }

    /// Returns the flow, read independently of the code under test.
    pub(super) fn flow(&self) -> Flow {
        let address = |at: usize| -> IpAddr {
            if self.is_ipv4() {
                IpAddr::from(<[u8; 4]>::try_from(&self.bytes[at..at + 4]).unwrap())
            } else {
                IpAddr::from(<[u8; 16]>::try_from(&self.bytes[at..at + 16]).unwrap())
            }
        };
        let (source, destination) =
            if self.is_ipv4() { (address(12), address(16)) } else { (address(8), address(24)) };
        let udp = self.udp_header();
        Flow {
            source,
            destination,
            source_port: u16::from_be_bytes([udp[0], udp[1]]),
            destination_port: u16::from_be_bytes([udp[2], udp[3]]),
        }
    }
}

/// Returns V1 … V8 in order.
pub(super) fn all() -> Vec<Vector> {
    let mad = [
        "45000134000040004011b5b5c0000201c0000202c00012b7012000006400ffff00000001000000008001000000000001",
        &"00".repeat(256),
        "7ac2a509",
    ]
    .concat();
    alloc::vec![
        Vector::new(
            "V1",
            "45000034000040004011b6b5c0000201c0000202c0de12b70020000004f0ffff000000118000abcd68656c6c6f000000\
             a3bea705",
        ),
        Vector::new(
            "V2",
            "4502004c1234400011113c5e0a0102030a040506f00d12b7003800000a00ffff0012345680fffffe00007f0011223344\
             deadbeef00000010000102030405060708090a0b0c0d0e0f7e1c59fd",
        ),
        Vector::new(
            "V3",
            "66812345001c114020010db800000000000000000000000120010db8000000000000000000000002c00112b7001c0000\
             1140ffff000000220000abcd1f0000015a00b269",
        ),
        Vector::new("V4", &mad),
        Vector::new(
            "V5",
            "45c0003c000040004011b5edc0000202c0000201c0de12b7002800008100ffff40000011000000000000000000000000\
             0000000000000000f063c4b3",
        ),
        Vector::new(
            "V6",
            "45010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff000000d300cf17104630818be28935d9\
             0e9a95505401be885e50000078f353f3",
        ),
        Vector::new(
            "V7",
            "6e21face002c11ff2022000000000000000000000000102320230000000000000000000000001024c00012b7002ce7c5\
             2460ffff000000d300cf17104630818be28935d90e9a95505401be885e5000003e5b743b",
        ),
        Vector::new(
            "V8",
            "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000\
             000000000000000082fd002a",
        ),
    ]
}
