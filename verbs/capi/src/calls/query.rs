//! Queries of the attributes of the device and its ports.

use std::ffi::{c_char, c_int};

use crate::entry::{number_of, status_of};
use crate::objects::{Context, peer_host};
use crate::platform::{Errno, INVALID};
use pumice_calls::Call;
use pumice_device::addresses::DevicePort;
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::memory::on_demand_is_available;
use pumice_device::objects::tag_list::{MAX_TAG_SGE, MAX_TAGS};
use pumice_device::profile::{LinkLayer, NodeType, PortProfile, Speed, Width};
use pumice_transport::types::{QpType, WR_OPCODES};

use super::shared_receive_queue::matches_tags;
use crate::abi::plain::zeroed;
use crate::abi::{
    ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_odp_caps, ibv_port_attr,
    ibv_tm_caps, ibv_values_ex,
};
use crate::entry::arguments::{In, InOut, Out, OutArray};
use crate::gate::CallSubject;

/// The flags `IBV_ODP_SUPPORT` and `IBV_ODP_SUPPORT_IMPLICIT`.
const ODP_GENERAL: u64 = 3;
/// Flags of every operation (`IBV_ODP_SUPPORT_*`).
const ODP_RELIABLE: u32 = 0xff;
/// Flags of RC, UC and UD: every operation that they have, because all memory is accessed the same way.
const ODP_TRANSPORTS: [u32; 3] = [ODP_RELIABLE, 1 | 1 << 1 | 1 << 2 | 1 << 5, 1 | 1 << 1 | 1 << 5];
/// Cycles of the device's clock per ms: the clock counts ns.
const CLOCK_KHZ: u64 = 1_000_000;

fn device_attributes(context: &Context) -> ibv_device_attr {
    let profile = context.device().profile();
    let mut attributes: ibv_device_attr = zeroed();
    // A profile leaves room for the NUL.
    for (target, byte) in attributes.fw_ver.iter_mut().zip(profile.fw_ver.bytes()) {
        *target = byte as c_char;
    }
    let limits = context.hca().limits();
    let count = |limit: u32| c_int::try_from(limit).unwrap_or(c_int::MAX);
    attributes.node_guid = context.device().guid();
    if profile.node == NodeType::Ca {
        attributes.sys_image_guid = context.device().guid();
    }
    attributes.max_mr_size = profile.max_mr_size;
    attributes.page_size_cap = profile.page_size_cap;
    attributes.vendor_id = profile.vendor_id;
    attributes.vendor_part_id = profile.part_id;
    attributes.hw_ver = profile.hw_ver;
    attributes.max_qp = count(limits.max_qp);
    attributes.max_qp_wr = count(limits.max_qp_wr);
    attributes.device_cap_flags = profile.capabilities.bits();
    attributes.max_sge = count(limits.max_sge);
    attributes.max_sge_rd = count(limits.max_sge);
    attributes.max_cq = count(profile.limits.max_cq);
    attributes.max_cqe = count(limits.max_cqe);
    attributes.max_mr = count(limits.max_mr);
    attributes.max_pd = count(limits.max_pd);
    attributes.max_qp_rd_atom = limits.max_rd_atomic.into();
    attributes.max_res_rd_atom = c_int::from(limits.max_rd_atomic).saturating_mul(count(limits.max_qp));
    attributes.max_qp_init_rd_atom = limits.max_init_rd_atomic.into();
    attributes.atomic_cap = profile.atomics as u32;
    attributes.max_mw = count(limits.max_mr);
    attributes.max_mcast_grp = count(limits.max_mcast_grp);
    attributes.max_mcast_qp_attach = count(limits.max_mcast_qp_attach);
    attributes.max_total_mcast_qp_attach =
        count(limits.max_mcast_grp.saturating_mul(limits.max_mcast_qp_attach));
    attributes.max_ah = count(limits.max_ah);
    attributes.max_srq = count(limits.max_srq);
    attributes.max_srq_wr = count(limits.max_srq_wr);
    attributes.max_srq_sge = count(limits.max_srq_sge);
    attributes.max_pkeys = limits.pkey_table_len;
    attributes.local_ca_ack_delay = profile.ack_delay;
    attributes.phys_port_cnt = context.device().port_count();
    if !profile.queue_pairs.has(QpType::Rc) {
        // Such a device cannot read memory of peers.
        attributes.max_sge_rd = attributes.max_sge.min(1);
        (attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom, attributes.max_res_rd_atom) = (0, 0, 0);
    }
    if !profile.capabilities.has_memory_windows() {
        attributes.max_mw = 0;
    }
    if limits.max_srq == 0 {
        (attributes.max_srq_wr, attributes.max_srq_sge) = (0, 0);
    }
    attributes
}

pub(crate) extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    device_attr: Out<'_, ibv_device_attr>,
) -> c_int {
    status_of(Call::ibv_query_device, CallSubject::on(context), || {
        let target = device_attr.required()?;
        let context = Context::facts_of(context)?;
        target.set(device_attributes(&context));
        Ok(())
    })
}

/// Returns at most `attr_size` bytes of attributes: programs are older or newer than this library.
/// The sizes of lists of tags, and the flag `IBV_TM_CAP_RC`. No operation is ever outstanding.
const TAG_CAPS: ibv_tm_caps = ibv_tm_caps {
    max_rndv_hdr_size: 64,
    max_num_tags: MAX_TAGS,
    flags: 1,
    max_ops: MAX_TAGS,
    max_sge: MAX_TAG_SGE,
};

pub(crate) extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: In<'_, u32>,
    attr: Out<'_, ibv_device_attr_ex>,
    attr_size: usize,
) -> c_int {
    status_of(Call::ibv_query_device_ex, CallSubject::on(context), || {
        // The structure begins with its mask.
        let wants_extended = input.optional().is_some_and(|comp_mask| *comp_mask != 0);
        let target = attr.required()?;
        if wants_extended || attr_size < size_of::<ibv_device_attr>() {
            return Err(INVALID);
        }
        let mut all: ibv_device_attr_ex = zeroed();
        let context = Context::facts_of(context)?;
        all.orig_attr = device_attributes(&context);
        all.max_dm_size = context.hca().limits().max_dm_size;
        all.device_cap_flags_ex = u64::from(all.orig_attr.device_cap_flags);
        all.phys_port_cnt_ex = context.device().port_count().into();
        if context.device().profile().node != NodeType::Ca {
            target.set_within(&all, attr_size);
            return Ok(());
        }
        all.device_cap_flags_ex |= WR_OPCODES.iter().fold(0, |flags, info| flags | info.device_flag);
        if on_demand_is_available() {
            all.odp_caps = ibv_odp_caps { general_caps: ODP_GENERAL, per_transport_caps: ODP_TRANSPORTS };
            all.xrc_odp_caps = ODP_RELIABLE;
        }
        all.completion_timestamp_mask = u64::MAX;
        all.hca_core_clock = CLOCK_KHZ;
        all.cq_mod_caps = [u16::MAX; 2];
        if context.device().profile().packet_pacing {
            all.packet_pacing_caps = [1, u32::MAX, 1 << QpType::RawPacket as u32];
        }
        if matches_tags(&context) {
            all.tm_caps = TAG_CAPS;
        }
        target.set_within(&all, attr_size);
        Ok(())
    })
}

/// Length of `ibv_port_attr` in bytes in programs that call the exported function: it ends after `flags`.
const OLD_PORT_ATTR_BYTES: usize = 48;

pub(crate) extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: Out<'_, ibv_port_attr>,
) -> c_int {
    query_port(context, port_num, port_attr, OLD_PORT_ATTR_BYTES)
}

/// Returns at most `size` bytes of port attributes.
pub(crate) extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: Out<'_, ibv_port_attr>,
    size: usize,
) -> c_int {
    status_of(Call::ibv_query_port, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let target = port_attr.required()?;
        let (port, now) = port_of(&context, port_num.into())?;
        let is_active = now.is_active();
        let (speed, width) = rate(port, &now);
        let lid = peer_host::lid_of_port(context.hca(), port_num);
        let is_ethernet = port.link_layer == LinkLayer::Ethernet;
        let attributes = ibv_port_attr {
            state: if is_active { 4 } else { 1 }, // ACTIVE, DOWN
            max_mtu: port.max_mtu as u32,
            active_mtu: now.active_mtu() as u32,
            gid_tbl_len: port.max_gids as c_int,
            port_cap_flags: u32::from(is_ethernet) << 16, // CM_SUP
            max_msg_sz: port.max_message_bytes,
            pkey_tbl_len: now.pkeys.len(),
            max_vl_num: 1,
            active_width: width.verbs_number(),
            // The old field has 8 bits: faster ones are in the other field only.
            active_speed: u8::try_from(speed as u32).unwrap_or(0x80),
            phys_state: match (now.is_disabled(), is_active && now.is_cable_in()) {
                (true, _) => 3,      // DISABLED
                (false, true) => 5,  // LINK_UP
                (false, false) => 2, // POLLING
            },
            //= linux:rxe_verbs.c#rxe_get_link_layer
            //| The port of RoCE has the link layer Ethernet.
            link_layer: port.link_layer as u8,
            lid,
            lmc: u8::from(!is_ethernet),
            //= man:ibv_create_ah
            //| The port says that every address needs a GRH.
            flags: u8::from(is_ethernet && lid == 0), // GRH_REQUIRED
            active_speed_ex: speed as u32,
            ..ibv_port_attr::default()
        };
        target.set_within(&attributes, size);
        Ok(())
    })
}

/// Returns the present rate of a lane and the number of lanes.
fn rate(port: &PortProfile, now: &DevicePort) -> (Speed, Width) {
    let (speed, width) = now.changed_rate();
    (speed.unwrap_or(port.speed), width.unwrap_or(port.width))
}

/// Returns the rate of all lanes of the port together, in units of 100 Mbit/s.
pub(crate) extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port_num: u32,
    port_speed: Out<'_, u64>,
) -> c_int {
    status_of(Call::ibv_query_port_speed, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let (port, now) = port_of(&context, port_num)?;
        let target = port_speed.required()?;
        let (speed, width) = rate(port, &now);
        target.set(u64::from(speed.lane_rate()) * u64::from(width.lanes()));
        Ok(())
    })
}

/// Returns the GID at an index of the table; zero at an empty index.
pub(crate) extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: Out<'_, ibv_gid>,
) -> c_int {
    number_of(Call::ibv_query_gid, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let port_num = check_port(&context, port_num.into())?;
        let target = gid.required()?;
        let len = gid_table_len(&context, port_num);
        let beyond = || format!("ibv_query_gid refused: GID index {index} beyond a table of {len}");
        let index = u32::try_from(index).ok().filter(|index| *index < len);
        let index = index.ok_or_else(|| INVALID.because(beyond))?;
        let raw = context.hca().gid(port_num, index).map_or([0; 16], |entry| entry.gid.0);
        target.set(ibv_gid { raw });
        Ok(0)
    })
}

/// The value `IBV_GID_TYPE_ROCE_V2` of the public enumeration.
const GID_TYPE_ROCE_V2: u32 = 2;
/// Value of RoCE v2 in the enumeration of `ibv_query_gid_type`.
const SYSFS_GID_TYPE_ROCE_V2: u32 = 1;

fn gid_entry(context: &Context, port_num: u8, index: u32) -> Option<ibv_gid_entry> {
    context.hca().gid(port_num, index).map(|entry| to_c(context, index, &entry))
}

fn to_c(context: &Context, index: u32, entry: &GidEntry) -> ibv_gid_entry {
    // The index is that of the interface which sysfs names.
    let netdev = context.device().description().netdev.as_ref().map(|(_, index)| *index);
    let netdev = netdev.filter(|_| entry.port_num == 1);
    ibv_gid_entry {
        gid: ibv_gid { raw: entry.gid.0 },
        gid_index: index,
        port_num: entry.port_num.into(),
        //= man:ibv_query_gid_ex
        //| An entry tells the type of the GID and the index of its interface.
        gid_type: if is_ethernet(context, entry.port_num) { GID_TYPE_ROCE_V2 } else { 0 },
        ndev_ifindex: netdev.unwrap_or(entry.interface_index),
    }
}

pub(crate) extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: Out<'_, ibv_gid_entry>,
    flags: u32,
    entry_size: usize,
) -> c_int {
    status_of(Call::ibv_query_gid_ex, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let port_num = check_port(&context, port_num)?;
        let target = entry.required()?;
        //= man:ibv_query_gid_ex
        //| The flags of the call must be 0.
        if flags != 0 {
            return Err(INVALID);
        }
        let len = gid_table_len(&context, port_num);
        if gid_index >= len {
            let beyond =
                || format!("ibv_query_gid_ex refused: GID index {gid_index} beyond a table of {len}");
            return Err(INVALID.because(beyond));
        }
        //= man:ibv_query_gid_ex
        //| The call fails with ENODATA if the place of the table is empty.
        let found = gid_entry(&context, port_num, gid_index).ok_or(Errno(libc::ENODATA))?;
        target.set_within(&found, entry_size);
        Ok(())
    })
}

/// Returns all entries of the table: their number, or a negative errno. EINVAL means that there are more than
/// fit.
pub(crate) extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: OutArray<'_, ibv_gid_entry>,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let mut count = 0_isize;
    let failed = status_of(Call::ibv_query_gid_table, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let mut elements = entries.elements(max_entries)?;
        if flags != 0 {
            return Err(INVALID);
        }
        let found: Vec<ibv_gid_entry> =
            context.hca().gids().iter().map(|(index, entry)| to_c(&context, *index, entry)).collect();
        if found.len() > max_entries {
            return Err(INVALID);
        }
        for entry in &found {
            elements.put_within(entry, entry_size);
        }
        count = found.len() as isize;
        Ok(())
    });
    if failed == 0 { count } else { -(failed as isize) }
}

/// Returns the type of a GID: a private call between libibverbs and `ibv_devinfo`.
pub(crate) extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: u32,
    gid_type: Out<'_, u32>,
) -> c_int {
    number_of(Call::ibv_query_gid_type, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let port_num = check_port(&context, port_num.into())?;
        let target = gid_type.required()?;
        if index >= gid_table_len(&context, port_num) {
            return Err(INVALID);
        }
        let is_ethernet = is_ethernet(&context, port_num);
        target.set(if is_ethernet { SYSFS_GID_TYPE_ROCE_V2 } else { 0 });
        Ok(0)
    })
}

/// Returns the P_Key at an index, in network byte order.
pub(crate) extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: Out<'_, u16>,
) -> c_int {
    number_of(Call::ibv_query_pkey, CallSubject::on(context), || {
        let context = Context::of(context)?;
        // libibverbs reads a file of the port in /sys, and fails as opening it does.
        let no_file = Errno(libc::ENOENT);
        let found = port_of(&context, port_num.into()).map_err(|_| no_file).and_then(|(_, port)| {
            let found = u32::try_from(index).ok().and_then(|index| port.pkeys.pkey(index).ok());
            found.ok_or_else(|| no_file.because(|| format!("port {port_num} has no P_Key of index {index}")))
        })?;
        //= man:ibv_query_pkey
        //| The P_Key is returned in network byte order.
        pkey.required()?.set(found.to_be());
        Ok(0)
    })
}

/// Returns the index of a P_Key in network byte order, or -1.
pub(crate) extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: u16) -> c_int {
    number_of(Call::ibv_get_pkey_index, CallSubject::on(context), || {
        let context = Context::of(context)?;
        let (_, port) = port_of(&context, port_num.into())?;
        let index = port.pkeys.index_of(u16::from_be(pkey));
        index.map(c_int::from).ok_or(Errno(libc::ENOENT))
    })
}

/// Returns the profile and the present state of a port.
///
/// # Errors
/// Fails with EINVAL if it is no port of this device.
fn port_of(context: &Context, number: u32) -> Result<(&PortProfile, DevicePort), Errno> {
    let found = u8::try_from(number).ok();
    found
        .and_then(|port_num| context.device().port(port_num).zip(context.hca().port(port_num)))
        .ok_or_else(|| no_port(number))
}

/// Returns the number of entries of a port's GID table.
fn gid_table_len(context: &Context, port_num: u8) -> u32 {
    context.device().port(port_num).map_or(0, |port| port.max_gids)
}

/// Reports whether the link layer of a port is Ethernet.
fn is_ethernet(context: &Context, port_num: u8) -> bool {
    context.device().port(port_num).is_some_and(|port| port.link_layer == LinkLayer::Ethernet)
}

/// # Errors
/// Fails with EINVAL if it is no port of this device.
fn check_port(context: &Context, number: u32) -> Result<u8, Errno> {
    let found = u8::try_from(number).ok();
    found.filter(|port| (1..=context.device().port_count()).contains(port)).ok_or_else(|| no_port(number))
}

fn no_port(number: u32) -> Errno {
    INVALID.because(|| format!("the device has no port {number}; ports are counted from 1"))
}

/// The flag `IBV_VALUES_MASK_RAW_CLOCK`.
const VALUES_RAW_CLOCK: u32 = 1;

/// Reads the clock of completions' timestamps, in its cycles: ns. As with other devices, the whole value is
/// in `tv_nsec`.
pub(crate) extern "C" fn query_rt_values_ex(
    context: *mut ibv_context,
    values: InOut<'_, ibv_values_ex>,
) -> c_int {
    status_of(Call::ibv_query_rt_values_ex, CallSubject::on(context), || {
        let (context, values) = (Context::of(context)?, values.get()?);
        let mask = values.comp_mask;
        if mask & !VALUES_RAW_CLOCK != 0 {
            return Err(INVALID.because(|| {
                format!("ibv_query_rt_values_ex refused: comp_mask {mask:#x} has bits other than RAW_CLOCK")
            }));
        }
        if values.comp_mask & VALUES_RAW_CLOCK != 0 {
            values.raw_clock = [0, context.hca().clock().now_ns()];
        }
        Ok(())
    })
}
