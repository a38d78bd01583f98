//! Questions about RDMA devices that go to the kernel through netlink (NETLINK_RDMA): those of `rdma` of
//! iproute2, of rdma-core's tests and of monitors. Such a socket becomes one between programs
//! (NETLINK_USERSOCK) that is connected to itself, so that no other socket can send to it. While the program
//! sends a question, the preload puts the answer into the same socket. The socket stays a netlink socket:
//! binding, polling and receiving are the C library's.
//!
//! The attributes of the answers are in the tree (`netlink/DEVICE/COMMAND`), where
//! `device/analysis/src/sysfs/netlink.rs` puts them. This module adds the headers around them, and the
//! numbers of statistics.

use std::ffi::{c_int, c_void};
use std::mem::{size_of, transmute, zeroed};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{msghdr, size_t, sockaddr, sockaddr_nl, socklen_t, ssize_t};

use crate::kernel::{FOLDER, Original, read_private};
use crate::live::CounterTotals;
use crate::request::{Name, NetlinkRequest};
use crate::{condition, removed_devices, replies, request};

const NETLINK_RDMA: c_int = 20;
/// Maximum number of descriptors that are tracked; higher ones are left to the kernel.
const MAX_DESCRIPTORS: usize = 4096;
/// Buffer size for a question that is sent in pieces, in bytes; longer ones are cut, and none has more than a
/// few numbers.
const REQUEST_BYTES: usize = 512;
/// Buffer size for a sentence to the user, in bytes; names of devices and types have 64 bytes at most.
const SENTENCE_BYTES: usize = 512;

/// Folder of the answers in the tree.
const REPLIES_FOLDER: &[u8] = b"/netlink/";

/// Descriptors of sockets that were made here, as bits. A descriptor may have been closed and reused, so its
/// protocol is checked.
static RDMA_SOCKETS: [AtomicU64; MAX_DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; MAX_DESCRIPTORS / 64];

static SOCKET: Original = Original::new(c"socket");
static SEND: Original = Original::new(c"send");
static SENDTO: Original = Original::new(c"sendto");
static SENDMSG: Original = Original::new(c"sendmsg");
/// All originals, which are resolved before the program begins.
pub(crate) static ORIGINALS: [&Original; 4] = [&SOCKET, &SEND, &SENDTO, &SENDMSG];

type Socket = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
type Send = unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
type SendTo =
    unsafe extern "C-unwind" fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
type SendMsg = unsafe extern "C-unwind" fn(c_int, *const msghdr, c_int) -> ssize_t;

fn bit_of(descriptor: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((RDMA_SOCKETS.get(number / 64)?, 1 << (number % 64)))
}

/// Reports whether a message sent here is a question for the device.
#[inline]
fn is_rdma_socket(descriptor: c_int) -> bool {
    bit_of(descriptor).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
        && has_replaced_protocol(descriptor)
}

#[cold]
fn has_replaced_protocol(descriptor: c_int) -> bool {
    let option = |name: c_int| {
        let (mut value, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
        // SAFETY: the pointers are to an integer and its length.
        let status = unsafe {
            libc::getsockopt(descriptor, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length)
        };
        (status == 0).then_some(value)
    };
    option(libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
        && option(libc::SO_PROTOCOL) == Some(libc::NETLINK_USERSOCK)
}

/// # Safety
/// The requirements of the C library's function; the same for those below.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let address = SOCKET.address();
    if address.is_null() {
        return -1;
    }
    // SAFETY: the C library's function of this name has this type.
    let original = unsafe { transmute::<*mut c_void, Socket>(address) };
    if domain != libc::AF_NETLINK || protocol != NETLINK_RDMA || FOLDER.value().is_none() {
        // SAFETY: the caller guarantees what the C library's function requires.
        return unsafe { original(domain, kind, protocol) };
    }
    // SAFETY: no memory is accessed.
    let made = unsafe { original(domain, kind, libc::NETLINK_USERSOCK) };
    if let Some((word, bit)) = bit_of(made) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    made
}

/// # Safety
/// The same as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn send(
    descriptor: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    let address = SEND.address();
    if address.is_null() {
        return -1;
    }
    // SAFETY: the C library's function of this name has this type; the caller guarantees what it requires.
    unsafe {
        if is_rdma_socket(descriptor) {
            return handle_request(descriptor, bytes, length);
        }
        transmute::<*mut c_void, Send>(address)(descriptor, bytes, length, flags)
    }
}

/// # Safety
/// The same as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendto(
    descriptor: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> ssize_t {
    let address = SENDTO.address();
    if address.is_null() {
        return -1;
    }
    // SAFETY: the C library's function of this name has this type; the caller guarantees what it requires.
    unsafe {
        if is_rdma_socket(descriptor) {
            return handle_request(descriptor, bytes, length);
        }
        transmute::<*mut c_void, SendTo>(address)(descriptor, bytes, length, flags, to, to_length)
    }
}

/// # Safety
/// The same as above.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmsg(
    descriptor: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    let address = SENDMSG.address();
    if address.is_null() {
        return -1;
    }
    // SAFETY: the C library's function of this name has this type; the caller guarantees what it requires.
    unsafe {
        if is_rdma_socket(descriptor) && !message.is_null() {
            return handle_request_iov(descriptor, &*message);
        }
        transmute::<*mut c_void, SendMsg>(address)(descriptor, message, flags)
    }
}

/// # Safety
/// The message and its buffers are readable.
unsafe fn handle_request_iov(descriptor: c_int, message: &msghdr) -> ssize_t {
    let mut question = [0_u8; REQUEST_BYTES];
    let (mut length, mut all) = (0_usize, 0_usize);
    for index in 0..message.msg_iovlen {
        // SAFETY: the caller guarantees that the message and its buffers are readable.
        let piece = unsafe {
            let piece = &*message.msg_iov.add(index);
            std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
        };
        for (to, from) in question.iter_mut().skip(length).zip(piece) {
            *to = *from;
        }
        all = all.saturating_add(piece.len());
        length = all.min(REQUEST_BYTES);
    }
    send_replies(descriptor, question.get(..length).unwrap_or_default());
    all as ssize_t
}

/// # Safety
/// This many bytes are readable.
unsafe fn handle_request(descriptor: c_int, bytes: *const c_void, length: size_t) -> ssize_t {
    if !bytes.is_null() {
        // SAFETY: the caller guarantees that these bytes are readable.
        send_replies(descriptor, unsafe { std::slice::from_raw_parts(bytes.cast(), length) });
    }
    length as ssize_t
}

/// Answers a question into the socket that it was sent to.
fn send_replies(descriptor: c_int, question: &[u8]) {
    let Some(own) = connected_to_itself(descriptor) else { return };
    let Some(request) = NetlinkRequest::parse(question) else { return };
    let devices = removed_devices::devices();
    let mut find = |name: &Name, (device, port): (u32, u32), room: &mut [u8]| {
        let found = read_private(&[REPLIES_FOLDER, name.bytes()], room)?;
        if request.is_about_statistics() {
            let counted = Name::of_device(device, if port == 1 { b"counted" } else { b"counted2" });
            let totals = CounterTotals::now(&[REPLIES_FOLDER, counted.bytes()]);
            request::put_statistics(found, &|marks| {
                let marks = marks.to_le_bytes().into_iter().filter(|mark| *mark != 0);
                totals.sum(marks.map(|mark| usize::from(mark) - 1))
            });
        }
        if request.is_about_objects() {
            let counted = Name::of_device(device, b"counted");
            request::put_objects(found, &condition::objects(&[REPLIES_FOLDER, counted.bytes()]));
        }
        if request.is_about_port()
            && let Some(condition) = removed_devices::condition(device, port)
        {
            request::put_states(found, condition.states());
        }
        Some(found.len())
    };
    if let Some((name, kind)) = request.new_link()
        && !replies::has_link(&request, devices, &mut find)
    {
        print_link_refusal(name, kind);
    }
    replies::replies(&request, own.nl_pid, devices, &mut find, &mut |bytes| {
        send_reply(descriptor, &own, bytes);
    });
}

/// Prints why `rdma link add` fails: the device has another name.
fn print_link_refusal(name: &[u8], kind: &[u8]) {
    let parts: [&[u8]; 7] = [
        b"pumice: no link of type ",
        kind,
        b" is made: programs behind \"pumice run\" have a device already, and need none. For a device of the \
          name ",
        name,
        b" write \"pumice run --device ",
        name,
        b"\"",
    ];
    let mut sentence = [0_u8; SENTENCE_BYTES];
    let mut length = 0;
    for (to, from) in sentence.iter_mut().zip(parts.iter().copied().flatten()) {
        // Names come from the program, so control characters are replaced.
        *to = if from.is_ascii_control() { b'?' } else { *from };
        length += 1;
    }
    if let Some(last) = sentence.get_mut(length.min(SENTENCE_BYTES - 1)) {
        *last = b'\n';
        length = SENTENCE_BYTES.min(length + 1);
    }
    // SAFETY: the bytes live during the call.
    unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, sentence.as_ptr(), length) };
}

fn send_reply(descriptor: c_int, own: &sockaddr_nl, bytes: &[u8]) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes and the address live during the call.
    unsafe {
        libc::syscall(
            libc::SYS_sendto,
            descriptor,
            bytes.as_ptr(),
            bytes.len(),
            flags,
            std::ptr::from_ref(own),
            size_of::<sockaddr_nl>(),
        )
    };
}

/// Connects the socket to itself, so that no other socket can send to it, and returns its address.
fn connected_to_itself(descriptor: c_int) -> Option<sockaddr_nl> {
    // SAFETY: an address of zero bytes is valid.
    let mut own: sockaddr_nl = unsafe { zeroed() };
    own.nl_family = libc::AF_NETLINK as u16;
    // SAFETY: the addresses have the length given, and live during the calls.
    unsafe {
        let mut length = size_of::<sockaddr_nl>() as socklen_t;
        let any = own;
        if libc::getsockname(descriptor, (&raw mut own).cast(), &raw mut length) == 0 && own.nl_pid == 0 {
            libc::bind(descriptor, (&raw const any).cast(), size_of::<sockaddr_nl>() as socklen_t);
            libc::getsockname(descriptor, (&raw mut own).cast(), &raw mut length);
        }
        own.nl_groups = 0;
        let connected =
            libc::connect(descriptor, (&raw const own).cast(), size_of::<sockaddr_nl>() as socklen_t);
        (own.nl_pid != 0 && connected == 0).then_some(own)
    }
}
