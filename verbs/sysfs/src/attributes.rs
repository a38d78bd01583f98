//! Attributes of netlink messages about RDMA devices (linux/rdma_netlink.h): finds them, and puts numbers
//! into them.

/// `RDMA_NLDEV_ATTR_*`.
pub(crate) const DEV_INDEX: u16 = 1;
pub(crate) const DEV_NAME: u16 = 2;
pub(crate) const PORT_INDEX: u16 = 3;
const PORT_STATE: u16 = 12;
const PORT_PHYS_STATE: u16 = 13;
const RES_SUMMARY: u16 = 15;
const RES_SUMMARY_ENTRY: u16 = 16;
const RES_SUMMARY_ENTRY_CURR: u16 = 18;
pub(crate) const LINK_TYPE: u16 = 65;
pub(crate) const STAT_RES: u16 = 75;
const HWCOUNTERS: u16 = 80;
const HWCOUNTER_ENTRY: u16 = 81;
const HWCOUNTER_ENTRY_VALUE: u16 = 83;
/// Length of the header before the value of an attribute, in bytes.
const HEADER_BYTES: usize = 4;
/// Mask of the kind of an attribute, without its flags.
const KIND: u16 = 0x3fff;

/// Returns the 16 bits at an offset.
pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// Returns the 32 bits at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A sequence of attributes, each with its kind and value.
pub(crate) struct NetlinkAttributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for NetlinkAttributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(half(self.0, 0)?);
        let kind = half(self.0, 2)? & KIND;
        let value = self.0.get(HEADER_BYTES..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Calls `each` with the value of every attribute of a kind.
fn each_of(attributes: &mut [u8], wanted: u16, each: &mut dyn FnMut(&mut [u8])) {
    let mut rest = attributes;
    while let Some(length) = half(rest, 0).map(usize::from).filter(|length| *length >= HEADER_BYTES) {
        let kind = half(rest, 2).map(|kind| kind & KIND);
        if kind == Some(wanted)
            && let Some(value) = rest.get_mut(HEADER_BYTES..length)
        {
            each(value);
        }
        rest = rest.get_mut(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Returns the name of the device that attributes are about.
pub(crate) fn device_name(attributes: &[u8]) -> Option<&[u8]> {
    let (_, name) = NetlinkAttributes(attributes).find(|(kind, _)| *kind == DEV_NAME)?;
    let name = name.split(|byte| *byte == 0).next()?;
    (!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..").then_some(name)
}

/// Puts the state and the physical state of a port into the attributes that have them.
pub(crate) fn put_states(attributes: &mut [u8], (state, physical): (u8, u8)) {
    for (kind, number) in [(PORT_STATE, state), (PORT_PHYS_STATE, physical)] {
        each_of(attributes, kind, &mut |value| {
            if let Some(first) = value.first_mut() {
                *first = number;
            }
        });
    }
}

/// Puts numbers in place of the marks that say how each number is computed.
pub(crate) fn put_statistics(attributes: &mut [u8], number: &dyn Fn(u64) -> u64) {
    each_of(attributes, HWCOUNTERS, &mut |counters| {
        each_of(counters, HWCOUNTER_ENTRY, &mut |entry| {
            each_of(entry, HWCOUNTER_ENTRY_VALUE, &mut |value| {
                if let Some(value) = value.first_chunk_mut::<8>() {
                    *value = number(u64::from_ne_bytes(*value)).to_ne_bytes();
                }
            });
        });
    });
}

/// Puts numbers of objects in place of their ordinals.
pub(crate) fn put_objects(attributes: &mut [u8], objects: &[u64]) {
    each_of(attributes, RES_SUMMARY, &mut |summary| {
        each_of(summary, RES_SUMMARY_ENTRY, &mut |entry| {
            each_of(entry, RES_SUMMARY_ENTRY_CURR, &mut |value| {
                if let Some(value) = value.first_chunk_mut::<8>() {
                    let ordinal = usize::try_from(u64::from_ne_bytes(*value)).ok();
                    let count = ordinal.and_then(|ordinal| objects.get(ordinal)).copied().unwrap_or(0);
                    *value = count.to_ne_bytes();
                }
            });
        });
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an attribute as bytes.
    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn states_of_ports_and_names_are_found() {
        let name = attribute(DEV_NAME, b"mlx5_3\0");
        let states = |state: u8, physical: u8| {
            [name.clone(), attribute(PORT_STATE, &[state]), attribute(PORT_PHYS_STATE, &[physical])].concat()
        };
        let mut attributes = states(4, 5);
        put_states(&mut attributes, (1, 3));
        assert_eq!(attributes, states(1, 3));
        assert_eq!(device_name(&attributes), Some(&b"mlx5_3"[..]));
        for wrong in [&b"\0"[..], b"", b"..\0", b"a/b\0"] {
            assert_eq!(device_name(&attribute(DEV_NAME, wrong)), None);
        }
    }

    #[test]
    fn statistics_get_their_numbers() {
        let entry = |value: u64| {
            attribute(
                HWCOUNTER_ENTRY | 1 << 15,
                &[attribute(82, b"x\0"), attribute(83, &value.to_ne_bytes())].concat(),
            )
        };
        let build = |values: [u64; 2]| {
            let counters = attribute(HWCOUNTERS | 1 << 15, &values.map(entry).concat());
            [attribute(DEV_INDEX, &[0; 4]), counters].concat()
        };
        let mut attributes = build([3, 9]);
        put_statistics(&mut attributes, &|marks| marks * 100);
        assert_eq!(attributes, build([300, 900]));
    }

    #[test]
    fn objects_get_their_numbers() {
        let entry = |value: u64| {
            let parts = [attribute(17, b"qp\0"), attribute(RES_SUMMARY_ENTRY_CURR, &value.to_ne_bytes())];
            attribute(RES_SUMMARY_ENTRY | 1 << 15, &parts.concat())
        };
        let build = |values: [u64; 3]| attribute(RES_SUMMARY | 1 << 15, &values.map(entry).concat());
        let mut attributes = build([0, 1, 9]);
        put_objects(&mut attributes, &[12, 3]);
        assert_eq!(attributes, build([12, 3, 0]));
    }
}
