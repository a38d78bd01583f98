//! Datagram sockets.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use libc::socklen_t;

use super::bell::Bell;
use super::options::Options;
use super::region::Buffers;
use crate::outcome::{Errno, NOT_SUPPORTED};

/// A datagram socket.
pub(crate) struct DatagramSocket(());

#[allow(clippy::unused_self, clippy::unnecessary_wraps)]
impl DatagramSocket {
    pub(crate) fn new(_family: c_int, _options: Options) -> Result<DatagramSocket, Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) fn descriptor(&self) -> RawFd {
        -1
    }
    pub(crate) fn bind(&self, _to: SocketAddr) -> Result<(), Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) fn connect(&self, _to: SocketAddr) -> Result<(), Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) fn close(&self) {}
    pub(crate) fn attend(&self) -> Result<(), Errno> {
        Ok(())
    }
    pub(crate) unsafe fn send(
        &self,
        _from: &mut Buffers<'_>,
        _flags: c_int,
        _to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) unsafe fn receive(
        &self,
        _into: &mut Buffers<'_>,
        _flags: c_int,
    ) -> Result<(usize, SocketAddr), Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        None
    }
    pub(crate) fn own(&self) -> Result<SocketAddr, Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) unsafe fn set_option(
        &self,
        _l: c_int,
        _o: c_int,
        _v: *const c_void,
        _n: socklen_t,
    ) -> Result<(), Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) unsafe fn show_option(
        &self,
        _l: c_int,
        _o: c_int,
        _v: *mut c_void,
        _n: *mut socklen_t,
    ) -> Result<(), Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) fn change_options(
        &self,
        _change: impl FnOnce(&mut Options) -> Result<c_int, Errno>,
    ) -> Result<c_int, Errno> {
        Err(NOT_SUPPORTED)
    }
    pub(crate) fn readiness(&self, _events: i16) -> i16 {
        0
    }
    pub(crate) fn watch(&self, _bell: &Arc<Bell>, _descriptors: &mut Vec<RawFd>) {}
    pub(crate) fn unwatch(&self, _bell: &Arc<Bell>) {}
}
