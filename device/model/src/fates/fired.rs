//! Rules that applied, and names of refusals: errnos, rejections, refused requests, lost events of channels.

use std::net::IpAddr;

use pumice_platform::ordinal::{CallOrdinal, Ordinal};
use pumice_transport::mad::PrivateData;
use pumice_transport::types::Fate;
use pumice_transport::wire::{NakCode, Syndrome};

use super::{CallFate, CallKey, PacketKey, TIME};
use crate::fates::completion::{CompletionFate, CompletionKey};
use crate::fates::incident::Incident;

/// The fate of an event of a completion channel: how long it is delayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompletionEventFate {
    /// Additional time before the event comes, in ns.
    pub delay_ns: u64,
    /// Number of further completions for which the event waits.
    pub more: u32,
    /// The longest time that the event waits for them, in ns.
    pub within_ns: u64,
}

/// The identity of an event of a completion channel in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompletionEventKey {
    /// The ordinal of the completion queue in its process, from 0.
    pub cq: u32,
    /// The ordinal of the event among those of the completion queue, from 1.
    pub nth: u64,
}

macro_rules! errnos {
    ($($name:ident)+; $($of_kernel:ident = $number:literal)+) => {
        /// Every errno of Linux, including those of the kernel's own that drivers let through by mistake.
        const NAMES: &[(&str, i32)] =
            &[$((stringify!($name), libc::$name),)+ $((stringify!($of_kernel), $number),)+];
    };
}

errnos! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EADV EAFNOSUPPORT EAGAIN EALREADY EBADE EBADF EBADFD EBADMSG
    EBADR EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHRNG ECOMM ECONNABORTED ECONNREFUSED ECONNRESET
    EDEADLK EDESTADDRREQ EDOM EDOTDOT EDQUOT EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM
    EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR EISNAM EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT
    EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP EMEDIUMTYPE EMFILE
    EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE ENOANO ENOBUFS
    ENOCSI ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET ENOPKG
    ENOPROTOOPT ENOSPC ENOSR ENOSTR ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE
    ENOTSOCK ENOTTY ENOTUNIQ ENXIO EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO
    EPROTONOSUPPORT EPROTOTYPE ERANGE EREMCHG EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESHUTDOWN
    ESOCKTNOSUPPORT ESPIPE ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT ETOOMANYREFS ETXTBSY EUCLEAN
    EUNATCH EUSERS EXDEV EXFULL;
    ERESTARTSYS = 512
    ERESTARTNOINTR = 513
    ERESTARTNOHAND = 514
    ENOIOCTLCMD = 515
    ERESTART_RESTARTBLOCK = 516
    EPROBE_DEFER = 517
    EOPENSTALE = 518
    ENOPARAM = 519
    EBADHANDLE = 521
    ENOTSYNC = 522
    EBADCOOKIE = 523
    ENOTSUPP = 524
    ETOOSMALL = 525
    ESERVERFAULT = 526
    EBADTYPE = 527
    EJUKEBOX = 528
    EIOCBQUEUED = 529
    ERECALLCONFLICT = 530
    ENOGRACE = 531
}

/// Returns the name of an errno, if Linux has it.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    NAMES.iter().find(|(_, number)| *number == errno).map(|(name, _)| *name)
}

/// Returns an errno as text for plans and reports: its name, or else its number.
pub fn errno_text(errno: i32) -> String {
    errno_name(errno).map_or_else(|| errno.to_string(), str::to_owned)
}

/// Returns the errno of a name or a number.
///
/// # Errors
/// The text is neither; the sentence says how to write one.
pub fn errno_from(text: &str) -> Result<i32, String> {
    // These names share their number with another one.
    let name = match text {
        "ENOTSUP" => "EOPNOTSUPP",
        "EWOULDBLOCK" => "EAGAIN",
        "EDEADLOCK" => "EDEADLK",
        _ => text,
    };
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    let number = text.parse().ok().filter(|number| errno_name(*number).is_some());
    number.ok_or_else(|| {
        format!("{text:?} is no errno of Linux: write a name like ENOMEM, or its number, such as 12 or 524")
    })
}

/// The name of an RNR NAK in plans.
pub const RNR: &str = "rnr";

/// The names of NAKs in plans.
pub const NAKS: [(&str, NakCode); 4] = [
    ("sequence", NakCode::Sequence),
    ("access", NakCode::RemoteAccess),
    ("operation", NakCode::RemoteOperation),
    ("invalid-request", NakCode::InvalidRequest),
];

/// Returns the name of a refusal in plans, and the timer code of an RNR NAK; `None` if plans have no name for
/// it.
pub fn word_of(syndrome: Syndrome) -> Option<(&'static str, Option<u8>)> {
    match syndrome {
        Syndrome::RnrNak { timer_code } => Some((RNR, Some(timer_code))),
        Syndrome::Nak(code) => NAKS.iter().find(|(_, known)| *known == code).map(|(word, _)| (*word, None)),
        Syndrome::Ack { .. } | Syndrome::Reserved(_) => None,
    }
}

/// Returns the name of a refusal in plans.
pub fn answer_word(syndrome: Syndrome) -> Option<&'static str> {
    word_of(syndrome).map(|(word, _)| word)
}

/// Room for private data in a REJ, in bytes.
pub const REJ_DATA_BYTES: usize = 148;

/// The private data of a REJ.
pub type RejData = PrivateData<REJ_DATA_BYTES>;

/// Reads the private data of a rejection: a text, or bytes in hexadecimal after `0x`.
///
/// # Errors
/// The text is too long, or its hexadecimal digits are no bytes.
pub fn private_data(text: &str) -> Result<RejData, String> {
    let bytes = match text.strip_prefix("0x") {
        Some(digits) => bytes_of(digits)
            .ok_or_else(|| format!("{text} is not bytes in hexadecimal: write two digits for each"))?,
        None => text.as_bytes().to_vec(),
    };
    PrivateData::new(&bytes).map_err(|error| format!("{error}: write less"))
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2));
    is_hex.then(|| pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect())?
}

/// Returns private data in hexadecimal, without the padding, as [`private_data`] reads it; `None` if there is
/// none.
pub fn private_data_text(data: &[u8]) -> Option<String> {
    let used = data.iter().rposition(|byte| *byte != 0)? + 1;
    let digits = data.iter().take(used).map(|byte| format!("{byte:02x}"));
    Some(digits.fold("0x".to_owned(), |text, pair| text + &pair))
}

/// A rule that applied to a packet.
#[derive(Debug, Clone, Copy)]
pub struct Fired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The packet.
    pub key: &'a PacketKey,
    /// The effect of this rule on the packet.
    pub fate: &'a Fate,
    /// Duration of the partition that begins here, in ns, if one begins; `Some(None)` means without end.
    pub partition_ns: Option<Option<u64>>,
    /// The incident of the device, if the rule causes one.
    pub incident: Option<Incident>,
    /// The private data with which a connection request is rejected.
    pub private_data: Option<&'a RejData>,
    /// The destination address of the packet.
    pub peer: IpAddr,
    /// The payload of the packet, in bytes, if the rule only notes it.
    pub noted_bytes: Option<u32>,
}

impl Fired<'_> {
    /// Returns what happens to a packet, as a verb whose object is the packet.
    pub fn deed(&self) -> String {
        let (fate, mut done) = (self.fate, Vec::new());
        let mut say = |happens: bool, text: String| {
            if happens {
                done.push(text);
            }
        };
        say(self.partition_ns.is_some(), "begins a partition from".to_owned());
        let refusal = fate.refused.and_then(answer_word);
        let is_refused = refusal.is_some() || fate.rejected.is_some();
        let has_more = self.partition_ns.is_some() || self.incident.is_some() || is_refused;
        say(fate.rejected.is_some(), format!("rejects (reason {})", fate.rejected.unwrap_or(0)));
        say(
            self.incident.is_some(),
            self.incident.map_or_else(String::new, |incident| format!("has {incident} happen before")),
        );
        say(fate.lost && !has_more, "loses".to_owned());
        say(refusal.is_some(), format!("answers {} to", refusal.unwrap_or_default()));
        say(fate.notified, "answers cnp to".to_owned());
        say(fate.copies > 0, format!("sends {} more of", fate.copies));
        say(fate.delay_ns > 0, format!("delays by {} us", fate.delay_ns / 1000));
        say(fate.behind_packets > 0, format!("puts behind {} packets", fate.behind_packets));
        say(fate.flips.is_some(), "corrupts".to_owned());
        say(fate.dscp.is_some(), "trims".to_owned());
        say(fate.path_mark.is_some(), "reflects another state of the path in".to_owned());
        say(
            fate.kept_bytes.is_some() && fate.dscp.is_none(),
            format!("cuts to {} bytes", fate.kept_bytes.unwrap_or(0)),
        );
        say(fate.marked, "marks".to_owned());
        say(self.noted_bytes.is_some(), "notes".to_owned());
        done.join(", ")
    }

    /// Returns the note about the packet for a capture.
    pub fn note(&self) -> String {
        let Fired { rule, key, .. } = self;
        format!(
            "fault \"{rule}\" {} {} of message {}, packet {}, transmission {} (queue pair {}, connection {})",
            self.deed(),
            key.class.name(),
            key.message,
            key.packet,
            key.transmission,
            Ordinal(key.qp),
            Ordinal(key.connection)
        )
    }
}

/// A rule that applied to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The call.
    pub key: CallKey<'a>,
    /// The effect of this rule on the call.
    pub fate: CallFate,
}

impl CallFired<'_> {
    /// Returns a sentence that says what the rule did.
    pub fn sentence(&self) -> String {
        let CallFired { rule, key: CallKey { call, ordinal, qp, .. }, fate, .. } = self;
        let on = qp.map_or_else(String::new, |qp| format!(" on queue pair {}", Ordinal(qp)));
        let what = match (fate.errno, fate.incident) {
            (Some(errno), _) => format!("fails {call} with {}", errno_text(errno)),
            (None, Some(incident)) if *call == TIME => {
                return format!("fault \"{rule}\" has {incident} happen after {} us", ordinal / 1000);
            }
            (None, Some(incident)) => format!("has {incident} happen after {call}"),
            (None, None) => format!("delays {call} by {} us", fate.delay_ns / 1000),
        };
        format!("fault \"{rule}\" {what} (call {} of this name{on})", CallOrdinal(*ordinal))
    }
}

/// A rule that applied to a completion.
#[derive(Debug, Clone, Copy)]
pub struct CompletionFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The completion.
    pub key: &'a CompletionKey,
    /// The effect of this rule on the completion.
    pub fate: &'a CompletionFate,
}

/// A rule that applied to an event of a completion channel.
#[derive(Debug, Clone, Copy)]
pub struct CompletionEventFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The event.
    pub key: CompletionEventKey,
    /// The effect of this rule on the event.
    pub fate: CompletionEventFate,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the errnos in the table of calls, whose crate does not depend on the C library.
    #[test]
    fn the_table_of_calls_has_the_numbers_of_the_c_library() {
        for (name, number) in pumice_calls::ERRNOS {
            assert_eq!(errno_from(name), Ok(*number), "{name}");
        }
        for info in pumice_calls::CALLS {
            assert!(info.errnos().iter().all(|errno| errno_name(*errno).is_some()), "{}", info.name);
        }
    }

    #[test]
    fn names_and_numbers_are_inverses() {
        for &(name, number) in NAMES {
            assert_eq!((errno_from(name), errno_name(number)), (Ok(number), Some(name)));
            assert_eq!(errno_from(&number.to_string()), Ok(number));
        }
        assert_eq!(errno_from("ENOTSUP"), Ok(libc::EOPNOTSUPP));
        assert_eq!((errno_from("524"), errno_from("ENOTSUPP")), (Ok(524), Ok(524)));
        assert_eq!((errno_text(131), errno_text(600)), ("ENOTRECOVERABLE".to_owned(), "600".to_owned()));
        for wrong in ["", "0", "-1", "134", "511", "ENOPE", "enomem"] {
            assert!(errno_from(wrong).is_err(), "{wrong}");
        }
    }
}
