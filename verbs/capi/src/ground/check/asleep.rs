//! Which descriptors the threads of this process sleep for, as the kernel tells.

use std::os::unix::fs::FileExt as _;

use pumice_device::outside;

/// Descriptors of a call that are looked at.
const MAX_POLLED: usize = 1024;
/// Bytes of a `struct pollfd`.
const POLLFD_BYTES: usize = 8;

/// Those of the descriptors for which a thread sleeps in poll(2), select(2) or epoll_wait(2), or in a call
/// like these.
pub(super) fn awaited(descriptors: &[i32]) -> Vec<i32> {
    let mut awaited = Vec::new();
    for thread in outside::files::list("/proc/self/task").into_iter().flatten().flatten() {
        let call = outside::files::fact_text(thread.path().join("syscall")).unwrap_or_default();
        let Some(call) = Call::parse(&call) else { continue };
        awaited.extend(descriptors.iter().copied().filter(|descriptor| call.awaits(*descriptor)));
    }
    awaited
}

/// A call in which a thread is, and its first two arguments.
struct Call {
    number: i64,
    first: u64,
    second: u64,
}

impl Call {
    /// As in "7 0x7ffd2e3c 0x1 …"; a thread that computes is "running".
    fn parse(text: &str) -> Option<Call> {
        let mut words = text.split(' ');
        let number = words.next()?.parse().ok()?;
        let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        Some(Call { number, first: argument()?, second: argument()? })
    }

    fn awaits(&self, descriptor: i32) -> bool {
        match self.number {
            libc::SYS_ppoll => self.polls(descriptor),
            libc::SYS_pselect6 => self.selects(descriptor),
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => self.has_in_set(descriptor),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => self.polls(descriptor),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => self.selects(descriptor),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => self.has_in_set(descriptor),
            _ => false,
        }
    }

    /// The first argument is the address of `struct pollfd`s, the second their number.
    fn polls(&self, descriptor: i32) -> bool {
        let count = usize::try_from(self.second).unwrap_or(usize::MAX).min(MAX_POLLED);
        let bytes = memory(self.first, count.saturating_mul(POLLFD_BYTES));
        let (polled, _) = bytes.as_chunks::<POLLFD_BYTES>();
        polled.iter().any(|one| one.starts_with(&descriptor.to_ne_bytes()))
    }

    /// The first argument is the number of bits, the second the address of those that are to be readable.
    fn selects(&self, descriptor: i32) -> bool {
        let Ok(bit) = u64::try_from(descriptor) else { return false };
        let byte = memory(self.second.wrapping_add(bit / 8), 1);
        bit < self.first && byte.first().is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    }

    /// The first argument is an epoll descriptor.
    fn has_in_set(&self, descriptor: i32) -> bool {
        let set = outside::files::fact_text(format!("/proc/self/fdinfo/{}", self.first)).unwrap_or_default();
        let members = set.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next());
        members.into_iter().any(|member| member.parse() == Ok(descriptor))
    }
}

/// Memory of this process, which the program may unmap meanwhile: the kernel copies it.
fn memory(address: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let read =
        outside::files::open("/proc/self/mem").and_then(|memory| memory.read_exact_at(&mut bytes, address));
    if read.is_ok() { bytes } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_and_running_threads_have_none() {
        let call = Call::parse("7 0x10 0x2 0xffffffff 0x0 0x0 0x0 0x7ffe 0x7f12\n").unwrap();
        assert_eq!((call.number, call.first, call.second), (7, 16, 2));
        for text in ["running\n", "", "7", "7 0x10", "-1 0x7ffe\n", "7 16 2"] {
            assert!(Call::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn descriptors_are_found_in_the_memory_of_calls() {
        let polled: [[u8; 8]; 2] = [[3, 0, 0, 0, 1, 0, 0, 0], [9, 0, 0, 0, 1, 0, 0, 0]];
        let poll = Call { number: libc::SYS_ppoll, first: polled.as_ptr().addr() as u64, second: 2 };
        assert_eq!([3, 9, 1].map(|descriptor| poll.awaits(descriptor)), [true, true, false]);
        let bits = [0_u8, 0b10, 0];
        let select =
            |count| Call { number: libc::SYS_pselect6, first: count, second: bits.as_ptr().addr() as u64 };
        assert!(select(10).awaits(9) && !select(9).awaits(9) && !select(10).awaits(8));
        assert!(!select(10).awaits(-1));
        let gone = Call { number: libc::SYS_ppoll, first: 8, second: u64::MAX };
        assert!(!gone.awaits(3));
        let epoll = Call { number: libc::SYS_epoll_pwait, first: u64::MAX, second: 0 };
        assert!(!epoll.awaits(3));
    }
}
