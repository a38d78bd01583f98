//! `rdma_getaddrinfo`: names to addresses, as the C library knows them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libc::{addrinfo, sockaddr};

use super::address;
use super::id::{QPT_RC, QPT_UD};
use super::infiniband;
use crate::ground::abi::{rdma_addrinfo, sockaddr_ib};
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED};
use crate::ground::handles::zeroed;
use crate::ground::outcome::{number, value};

/// `RAI_*`.
pub(crate) const RAI_PASSIVE: c_int = 1;
const RAI_NUMERICHOST: c_int = 2;
const RAI_FAMILY: c_int = 8;
pub(crate) const RAI_SA: c_int = 16;
const RAI_DNS: c_int = 32;
/// `RDMA_PS_*`.
const PS_TCP: c_int = 0x106;
const PS_UDP: c_int = 0x111;
const PS_IPOIB: c_int = 2;

/// What an endpoint says when it connects.
pub(crate) fn private_data(info: &rdma_addrinfo) -> &[u8] {
    if info.ai_connect.is_null() || info.ai_connect_len == 0 {
        return &[];
    }
    // SAFETY: the program's data, of that length.
    unsafe { std::slice::from_raw_parts(info.ai_connect.cast(), info.ai_connect_len) }
}

/// Returns 0, an `EAI_*` as getaddrinfo(3) does, or -1 and errno.
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    number(|| {
        // SAFETY: null or the caller's structure.
        let hints = unsafe { hints.as_ref() };
        if res.is_null() || (node.is_null() && service.is_null() && hints.is_none()) {
            return Err(INVALID);
        }
        let flags = hints.map_or(0, |hints| hints.ai_flags);
        if flags & RAI_SA != 0 {
            let both = flags & RAI_DNS != 0;
            return Err(NOT_SUPPORTED.because(|| match both {
                true => "RAI_SA and RAI_DNS exclude each other".to_owned(),
                false => "RoCE has no subnet administration that RAI_SA could ask".to_owned(),
            }));
        }
        // SAFETY: numbers and pointers.
        let (mut wanted, mut found): (addrinfo, _) = unsafe { (zeroed(), ptr::null_mut()) };
        wanted.ai_flags = if flags & RAI_PASSIVE != 0 { libc::AI_PASSIVE } else { 0 }
            | if flags & RAI_NUMERICHOST != 0 { libc::AI_NUMERICHOST } else { 0 };
        // A GID is an IP address, of either version.
        let by_gid = by_gid(hints);
        let family = hints.map_or(0, |hints| hints.ai_family);
        wanted.ai_family = if family == infiniband::FAMILY { 0 } else { family };
        // Services have ports of their own for datagrams.
        wanted.ai_socktype = match hints.map_or((0, 0), |hints| (hints.ai_port_space, hints.ai_qp_type)) {
            (PS_UDP | PS_IPOIB, 0) => libc::SOCK_DGRAM,
            (_, kind) if kind == QPT_UD as c_int => libc::SOCK_DGRAM,
            _ => libc::SOCK_STREAM,
        };
        let named = !node.is_null() || !service.is_null();
        if named {
            // SAFETY: null or the caller's texts.
            let code = unsafe { libc::getaddrinfo(node, service, &wanted, &mut found) };
            if code != 0 {
                return Ok(code);
            }
        }
        // SAFETY: null, or from getaddrinfo.
        let answer = unsafe { describe(hints, flags, found.as_ref(), by_gid) };
        if !found.is_null() {
            // SAFETY: from getaddrinfo.
            unsafe { libc::freeaddrinfo(found) };
        }
        // SAFETY: the caller's variable.
        unsafe { res.write(answer?) };
        Ok(0)
    })
}

/// Whether an address of numbers is wanted as a GID.
fn by_gid(hints: Option<&rdma_addrinfo>) -> bool {
    const FLAGS: c_int = RAI_FAMILY | RAI_NUMERICHOST;
    hints.is_some_and(|hints| hints.ai_flags & FLAGS == FLAGS && hints.ai_family == infiniband::FAMILY)
}

/// # Safety
/// The program's hints, whose addresses are as long as they say.
unsafe fn describe(
    hints: Option<&rdma_addrinfo>,
    flags: c_int,
    found: Option<&addrinfo>,
    by_gid: bool,
) -> Result<*mut rdma_addrinfo, Errno> {
    // SAFETY: numbers and pointers.
    let mut info: rdma_addrinfo = unsafe { zeroed() };
    // Of what was looked up, only this means something afterwards.
    info.ai_flags = if found.is_some() { flags & RAI_PASSIVE } else { flags };
    (info.ai_port_space, info.ai_qp_type) =
        hints.map_or((0, 0), |hints| (hints.ai_port_space, hints.ai_qp_type));
    if info.ai_port_space == 0 {
        info.ai_port_space = if info.ai_qp_type == QPT_UD as c_int { PS_UDP } else { PS_TCP };
    }
    if info.ai_qp_type == 0 {
        let datagrams = matches!(info.ai_port_space, PS_UDP | PS_IPOIB);
        info.ai_qp_type = if datagrams { QPT_UD } else { QPT_RC } as c_int;
    }
    // SAFETY: the caller's promise; getaddrinfo's.
    unsafe {
        let passive = flags & RAI_PASSIVE != 0;
        let gid = found.filter(|_| by_gid).and_then(|found| {
            let space = infiniband::port_space(info.ai_port_space).ok()?;
            Some(infiniband::describe(address::from_c(found.ai_addr).ok()?, space))
        });
        let named = match &gid {
            Some(gid) => Some((ptr::from_ref(gid).cast::<sockaddr>(), size_of::<sockaddr_ib>() as u32)),
            None => found.map(|found| (found.ai_addr.cast_const(), found.ai_addrlen)),
        };
        let hinted = |address: *mut sockaddr, length: u32| {
            (!address.is_null()).then_some((address.cast_const(), length))
        };
        let source = hints.and_then(|hints| hinted(hints.ai_src_addr, hints.ai_src_len));
        let destination = hints.and_then(|hints| hinted(hints.ai_dst_addr, hints.ai_dst_len));
        let (source, destination) =
            if passive { (named.or(source), None) } else { (source, named.or(destination)) };
        let copied = copy(source).and_then(|(address, length)| {
            (info.ai_src_addr, info.ai_src_len) = (address, length);
            (info.ai_dst_addr, info.ai_dst_len) = copy(destination)?;
            Ok(())
        });
        let shown = if info.ai_src_addr.is_null() { info.ai_dst_addr } else { info.ai_src_addr };
        if !shown.is_null() {
            info.ai_family = (*shown).sa_family.into();
        }
        let place = libc::malloc(size_of::<rdma_addrinfo>()).cast::<rdma_addrinfo>();
        if copied.is_err() || place.is_null() {
            release(&info);
            libc::free(place.cast());
            return Err(Errno(libc::ENOMEM));
        }
        place.write(info);
        Ok(place)
    }
}

/// # Safety
/// The address is so long.
unsafe fn copy(address: Option<(*const sockaddr, u32)>) -> Result<(*mut sockaddr, u32), Errno> {
    let Some((address, length)) = address.filter(|(_, length)| *length > 0) else {
        return Ok((ptr::null_mut(), 0));
    };
    let bytes = (length as usize).max(size_of::<libc::sockaddr_storage>());
    // SAFETY: the caller's promise; room for all of it.
    unsafe {
        let place = libc::calloc(1, bytes);
        if place.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        place.copy_from_nonoverlapping(address.cast(), length as usize);
        Ok((place.cast(), length))
    }
}

/// # Safety
/// What `describe` allocated.
unsafe fn release(info: &rdma_addrinfo) {
    let parts: [*mut c_void; 6] = [
        info.ai_src_addr.cast(),
        info.ai_dst_addr.cast(),
        info.ai_src_canonname.cast(),
        info.ai_dst_canonname.cast(),
        info.ai_route,
        info.ai_connect,
    ];
    for part in parts {
        // SAFETY: null or from malloc.
        unsafe { libc::free(part) };
    }
}

pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    value((), || {
        let mut next = res;
        while !next.is_null() {
            // SAFETY: null, or from `rdma_getaddrinfo`.
            unsafe {
                let info = next.read();
                release(&info);
                libc::free(next.cast());
                next = info.ai_next;
            }
        }
    });
}
