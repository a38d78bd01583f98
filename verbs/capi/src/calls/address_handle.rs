//! Address handles, and address vectors in their C form.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use pumice_device::ground::table::Handle;
use pumice_transport::path::Path;
use pumice_transport::types::{AddressVector, Gid, WcFlags};

use crate::calls::protection_domain::{Pd, Use};
use crate::ground::abi::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_wc,
};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, live, take_back};
use crate::ground::outcome::{pointer, status};
use crate::objects::command_file::Owned;
use crate::objects::context::Context;
use crate::objects::local_identifier;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: Shown<ibv_ah>,
    handle: Handle,
    domain: Handle,
    path: Arc<Path>,
    _domain_use: Option<Use>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Ah {
    type C = ibv_ah;
}

impl Listed for Ah {
    const KIND: &'static str = "address handle";

    fn identity(c: &ibv_ah) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Ah {
    /// The path that datagrams through it take.
    pub(crate) const fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Its protection domain.
    pub(crate) const fn domain(&self) -> Handle {
        self.domain
    }
}

/// An address vector from its C form.
pub(crate) fn vector_from(c: &ibv_ah_attr) -> AddressVector {
    AddressVector {
        is_global: c.is_global != 0,
        dgid: Gid(c.grh.dgid.raw),
        sgid_index: c.grh.sgid_index.into(),
        hop_limit: c.grh.hop_limit,
        traffic_class: c.grh.traffic_class,
        flow_label: c.grh.flow_label,
        port_num: c.port_num,
        sl: c.sl,
        static_rate: c.static_rate,
        dlid: c.dlid,
        src_path_bits: c.src_path_bits,
    }
}

/// The C form of an address vector.
pub(crate) fn vector_to(vector: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: vector.dgid.0 },
            flow_label: vector.flow_label,
            sgid_index: vector.sgid_index as u8,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        dlid: vector.dlid,
        sl: vector.sl,
        src_path_bits: vector.src_path_bits,
        static_rate: vector.static_rate,
        is_global: vector.is_global.into(),
        port_num: vector.port_num,
    }
}

/// # Safety
/// `pd` is null or live.
unsafe fn create(pd: *mut ibv_pd, vector: &AddressVector) -> Result<*mut ibv_ah, Errno> {
    // SAFETY: the caller's promise.
    let domain = unsafe { live::<Pd>(pd) }?;
    let context = domain.context()?;
    let vector = local_identifier::resolve(*vector, context.hca());
    let (handle, path) = context.hca().create_ah(domain.handle(), &vector)?;
    context.own(Owned::AddressHandle(handle.pack()));
    let c = ibv_ah { context: domain.context_pointer(), pd, handle: handle.index };
    let (domain, _domain_use) = (domain.handle(), domain.begin_use());
    Ok(hand_out(Ah { c: Shown::new(c), handle, domain, path, _domain_use }))
}

pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    pointer(|| {
        // SAFETY: null or the caller's structure; `pd` is null or live.
        unsafe { create(pd, &vector_from(attr.as_ref().ok_or(INVALID)?)) }
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    status(|| {
        // SAFETY: null or live; a context outlives its objects.
        let (held, context) = unsafe { (live::<Ah>(ah)?, Context::of((*ah).context)?) };
        context.hca().destroy_ah(held.handle)?;
        context.disown(Owned::AddressHandle(held.handle.pack()));
        // SAFETY: the program gives it back.
        unsafe { take_back::<Ah>(ah) };
        Ok(())
    })
}

/// Source and destination, traffic class and flow label of a received datagram.
fn read_grh(grh: &ibv_grh) -> (Gid, Gid, u8, u32) {
    let word = u32::from_be_bytes(grh.version_tclass_flow);
    if word >> 28 == 6 {
        return (Gid(grh.sgid), Gid(grh.dgid), (word >> 20) as u8, word & 0xf_ffff);
    }
    // IPv4: 20 bytes without meaning, then the IPv4 header, which ends with the two addresses.
    let [.., a, b, c, d, e, f, g, h] = grh.dgid;
    let gid = |octets: [u8; 4]| Gid::from(IpAddr::V4(Ipv4Addr::from(octets)));
    let [.., traffic_class, _, _] = grh.sgid;
    (gid([a, b, c, d]), gid([e, f, g, h]), traffic_class, 0)
}

/// The address of the sender of a received datagram.
///
/// # Safety
/// The pointers are null or the caller's structures.
unsafe fn sender(
    context: &Context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
) -> Result<AddressVector, Errno> {
    // SAFETY: the caller's promise.
    let (wc, grh) = unsafe { (wc.as_ref().ok_or(INVALID)?, grh.as_ref()) };
    if wc.wc_flags & WcFlags::GRH.bits() == 0 {
        return Err(INVALID.because(|| "a completion without GRH has no sender address on RoCE".to_owned()));
    }
    let (source, destination, traffic_class, flow_label) = read_grh(grh.ok_or(INVALID)?);
    let gids = context.hca().gids();
    let own = gids.iter().find(|(_, entry)| entry.gid == destination);
    // A group is no address to answer from: any address of the same IP version is.
    let alike = || gids.iter().find(|(_, entry)| entry.gid.is_ipv4() == source.is_ipv4());
    let found = own.or_else(|| if destination.is_multicast() { alike() } else { None });
    let sgid_index = found.map(|(index, _)| *index).ok_or(Errno(libc::ENOENT))?;
    Ok(AddressVector {
        is_global: true,
        dgid: source,
        sgid_index,
        hop_limit: u8::MAX,
        traffic_class,
        flow_label,
        port_num,
        // Not `wc.sl`: that tells the IP version.
        ..AddressVector::default()
    })
}

pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    ah_attr: *mut ibv_ah_attr,
) -> c_int {
    status(|| {
        if ah_attr.is_null() {
            return Err(INVALID);
        }
        // SAFETY: null or live, and the caller's structures.
        unsafe { ah_attr.write(vector_to(&sender(Context::of(context)?, port_num, wc, grh)?)) };
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    pointer(|| {
        // SAFETY: null or live, and the caller's structures.
        unsafe { create(pd, &sender(live::<Pd>(pd)?.context()?, port_num, wc, grh)?) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_either_ip_version_tells_sender_and_receiver() {
        let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
        let (from, to) = (gid("2001:db8::1"), gid("2001:db8::2"));
        let mut grh = ibv_grh {
            version_tclass_flow: 0x6341_2345_u32.to_be_bytes(),
            sgid: from.0,
            dgid: to.0,
            ..empty_header()
        };
        assert_eq!(read_grh(&grh), (from, to, 0x34, 0x1_2345));
        // 20 bytes of anything but version 6, then an IPv4 header.
        grh = empty_header();
        let header = [0x45, 0x88, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        grh.sgid[12..].copy_from_slice(&header[..4]);
        grh.dgid.copy_from_slice(&header[4..]);
        assert_eq!(read_grh(&grh), (gid("10.0.0.1"), gid("10.0.0.2"), 0x88, 0));
    }

    fn empty_header() -> ibv_grh {
        // SAFETY: numbers.
        unsafe { crate::ground::handles::zeroed() }
    }
}
