//! Address handles, address vectors in their C form, and multicast groups.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr};

use pumice_calls::Call;
use pumice_device::addresses::multicast::MulticastGroups;
use pumice_transport::types::{AddressVector, Gid, WcFlags};

use crate::abi::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_qp, ibv_wc,
};
use crate::check;
use crate::entry::arguments::{In, Out};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::objects::command_file::OwnedObject;
use crate::objects::domains::{Ah, Pd};
use crate::objects::queue_pair::Qp;
use crate::objects::{Context, peer_host};
use crate::platform::{Errno, INVALID};

/// Converts an address vector from its C form.
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

/// Converts an address vector to its C form.
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

fn create(pd: *mut ibv_pd, vector: &AddressVector) -> Result<*mut ibv_ah, Errno> {
    let domain = live::<Pd>(pd)?;
    let context = domain.context()?;
    let vector = peer_host::resolve_lid(*vector, context.hca());
    //= linux:verbs.c#ib_resolve_eth_dmac
    //| An address handle leads to a host that was found.
    peer_host::find(&vector, context.hca())?;
    let (handle, path) = context.hca().create_ah(domain.handle(), &vector)?;
    context.own(OwnedObject::AddressHandle(handle.pack()));
    let c = ibv_ah { context: domain.context_pointer(), pd, handle: handle.index };
    Ok(hand_out(Ah::new(c, handle, domain.handle(), path, domain.begin_use())))
}

pub(crate) extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: In<'_, ibv_ah_attr>) -> *mut ibv_ah {
    pointer_about(Call::ibv_create_ah, CallSubject::on(pd), || create(pd, &vector_from(attr.get()?)))
}

pub(crate) extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    status_of(Call::ibv_destroy_ah, CallSubject::of(ah), || {
        let held = live::<Ah>(ah)?;
        let context = Context::of(held.context_pointer())?;
        context.hca().destroy_ah(held.handle())?;
        context.disown(OwnedObject::AddressHandle(held.handle().pack()));
        take_back::<Ah>(ah);
        Ok(())
    })
}

/// Returns source and destination, traffic class and flow label of a received datagram.
fn read_grh(grh: &ibv_grh) -> (Gid, Gid, u8, u32) {
    let word = u32::from_be_bytes(grh.version_tclass_flow);
    //= linux:verbs.c#ib_get_rdma_header_version
    //| The version in the first byte tells an IPv6 header from an IPv4 one.
    if word >> 28 == 6 {
        return (Gid(grh.sgid), Gid(grh.dgid), (word >> 20) as u8, word & 0xf_ffff);
    }
    //= linux:verbs.c#ib_get_gids_from_rdma_hdr
    //| The addresses of IPv4 stand at the end of the GRH.
    let [.., a, b, c, d, e, f, g, h] = grh.dgid;
    let gid = |octets: [u8; 4]| Gid::from(IpAddr::V4(Ipv4Addr::from(octets)));
    let [.., traffic_class, _, _] = grh.sgid;
    (gid([a, b, c, d]), gid([e, f, g, h]), traffic_class, 0)
}

/// Returns the address vector of the sender of a received datagram.
fn sender(
    context: &Context,
    port_num: u8,
    wc: In<'_, ibv_wc>,
    grh: In<'_, ibv_grh>,
) -> Result<AddressVector, Errno> {
    if !(1..=context.device().port_count()).contains(&port_num) {
        return Err(INVALID.because(|| format!("the device has no port {port_num}")));
    }
    if wc.get()?.wc_flags & WcFlags::GRH.bits() == 0 {
        return Err(INVALID.because(|| "a completion without GRH has no sender address on RoCE".to_owned()));
    }
    //= man:ibv_create_ah_from_wc
    //| The address of the sender is taken from the GRH of a completion.
    let (source, destination, traffic_class, flow_label) = read_grh(grh.get()?);
    let mut gids = context.hca().gids();
    gids.retain(|(_, entry)| entry.port_num == port_num);
    let own = gids.iter().find(|(_, entry)| entry.gid == destination);
    // A group cannot be the source of an answer; any address of the same IP version can.
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
        // `wc.sl` is not used: it has the IP version.
        ..AddressVector::default()
    })
}

pub(crate) extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: In<'_, ibv_wc>,
    grh: In<'_, ibv_grh>,
    ah_attr: Out<'_, ibv_ah_attr>,
) -> c_int {
    status_of(Call::ibv_init_ah_from_wc, CallSubject::on(context), || {
        let ah_attr = ah_attr.required()?;
        let context = Context::of(context)?;
        ah_attr.set(vector_to(&sender(&context, port_num, wc, grh)?));
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: In<'_, ibv_wc>,
    grh: In<'_, ibv_grh>,
    port_num: u8,
) -> *mut ibv_ah {
    pointer_about(Call::ibv_create_ah_from_wc, CallSubject::on(pd), || {
        let context = live::<Pd>(pd)?.context()?;
        create(pd, &sender(&context, port_num, wc, grh)?)
    })
}

pub(crate) extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: In<'_, ibv_gid>, _lid: u16) -> c_int {
    status_of(Call::ibv_attach_mcast, Qp::about(qp), || {
        let (qp, gid) = (live::<Qp>(qp)?, gid.get()?);
        let group = Gid(gid.raw);
        qp.hca().attach_mcast(qp.number(), group)?;
        check::with_checker(|checker| checker.group_attached(MulticastGroups::normalise(group).into()));
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: In<'_, ibv_gid>, _lid: u16) -> c_int {
    status_of(Call::ibv_detach_mcast, Qp::about(qp), || {
        let (qp, gid) = (live::<Qp>(qp)?, gid.get()?);
        Ok(qp.hca().detach_mcast(qp.number(), Gid(gid.raw))?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_either_ip_version_names_sender_and_receiver() {
        let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
        let (from, to) = (gid("2001:db8::1"), gid("2001:db8::2"));
        let mut grh = ibv_grh {
            version_tclass_flow: 0x6341_2345_u32.to_be_bytes(),
            sgid: from.0,
            dgid: to.0,
            ..empty_header()
        };
        assert_eq!(read_grh(&grh), (from, to, 0x34, 0x1_2345));
        // The area has 20 bytes of anything but version 6, then an IPv4 header.
        grh = empty_header();
        let header = [0x45, 0x88, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        grh.sgid[12..].copy_from_slice(&header[..4]);
        grh.dgid.copy_from_slice(&header[4..]);
        assert_eq!(read_grh(&grh), (gid("10.0.0.1"), gid("10.0.0.2"), 0x88, 0));
    }

    fn empty_header() -> ibv_grh {
        crate::abi::plain::zeroed()
    }
}
