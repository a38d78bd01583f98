//! What programs and their users are told when something goes wrong.

mod kit;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines on standard error, with the program's own numbers replaced by their names.
fn sentences(output: &Output) -> Vec<String> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: BTreeMap<&str, &str> = stdout.lines().filter_map(|line| line.split_once('=')).collect();
    let mut text = stderr(output);
    for (name, number) in names.iter().filter(|(_, number)| number.starts_with("0x")) {
        text = text.replace(number, &format!("<{name}>"));
    }
    text.lines().map(str::to_owned).collect()
}

/// The program that makes every mistake, compiled once.
fn mistakes() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(|| kit::compile("sentences")).as_deref()
}

#[test]
fn each_usual_mistake_has_its_sentence() {
    let Some(program) = mistakes() else { return };
    let address = kit::address();
    let output = kit::on(address, program).env("PUMICE_LOG", "warn").output().expect("timeout(1) runs");
    kit::succeeded("sentences", &output);
    let lines = sentences(&output);
    let all = lines.join("\n");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |name: &str| {
        stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    };
    let element = "(element of 8 bytes at <FIRST>)";
    let lonely = "(retry_cnt 1, timeout 10: 5 ms each)";
    for expected in [
        "ibv_query_gid refused: GID index 1024 beyond a table of 1024".to_owned(),
        "QP <REFUSED>: a queue pair in state RESET takes no requests; send requests are taken from RTS \
        on"
        .to_owned(),
        "QP <REFUSED>: a queue pair in state RESET takes no requests; receive requests are taken from INIT \
         on"
        .to_owned(),
        "QP <SHALLOW> has max_rd_atomic 0, and send request 0x78 (RDMA_READ) needs 1 at least: this device \
         takes 0 for 1, as most adapters do, but on others, as on rdma_rxe, the request waits for ever"
            .to_owned(),
        "IBV_QPT_DRIVER is refused: queue pairs of a vendor's own kind (DC of mlx5, SRD of efa) are only on \
         that vendor's adapters; use RC, or UD for datagrams (for example UCX_TLS=rc,ud, or \
         FI_PROVIDER=verbs of libfabric)"
            .to_owned(),
        "QP <REFUSED> RTR refused: attribute min_rnr_timer missing for RC".to_owned(),
        format!(
            "QP <REFUSED> modify_qp refused: nothing there: GID index 5 has no GID (ibv_query_gid gives :: \
             for it); those that have one are 0 ({address})"
        ),
        format!(
            "QP <LONELY> send request 0x77 (SEND, 8 bytes) failed with RETRY_EXC_ERR at PSN 0x000005: \
             nothing came from QP 0xfe0123 at {address} after 2 transmissions {lonely}; no process of this \
             host has such a number: its process has ended, or the dest_qp_num is wrong"
        ),
        "QP <EAGER> send request 0x3 (SEND, 8 bytes) failed with RNR_RETRY_EXC_ERR at PSN 0x000064: the \
        peer had no \
         receive request posted, 2 times in a row (rnr_retry 1)"
            .to_owned(),
        "QP <GUARD> refused the peer's request at PSN 0x000064 with NAK 0x62: the range is not inside the \
        memory \
         region (R_Key <LKEY>, 8 bytes at 0x1000)"
            .to_owned(),
        "QP <INTRUDER> send request 0x4 (RDMA_WRITE, 8 bytes) failed with REM_ACCESS_ERR at PSN 0x000064: \
        the peer \
         refuses it: its R_Key is unknown there or of another protection domain, the range is not inside \
         the region, or \
         the region lacks the right (R_Key <LKEY>, 8 bytes at 0x1000)"
            .to_owned(),
        format!(
            "QP <CARELESS> failed: completion queue {} of 1 entries, where its sends complete, overran; \
            poll it more \
             often or make it larger",
            number("SMALL")
        ),
        format!(
            "QP <NOKEY> send request 0x51 (SEND, 8 bytes) failed with LOC_PROT_ERR at PSN 0x000064: no \
            memory region has \
             lkey 0x00dead00: it is wrong, or was deregistered {element}"
        ),
        format!(
            "QP <FOREIGNER> send request 0x51 (SEND, 8 bytes) failed with LOC_PROT_ERR at PSN 0x000064: the \
            memory \
             region of lkey <FOREIGN> belongs to another protection domain {element}"
        ),
        "QP <OUTSIDE> send request 0x51 (SEND, 8 bytes) failed with LOC_PROT_ERR at PSN 0x000064: the range \
        is not inside \
         the memory region of lkey <LKEY>, which is 65536 bytes at <FIRST> (element of 8 bytes at 0x10)"
            .to_owned(),
        format!(
            "QP <READ> refused the peer's request at PSN 0x000064 with NAK 0x63: its receive request names \
            memory that \
             cannot be used; receive request 0x52: the memory region of lkey <READONLY> lacks \
             IBV_ACCESS_LOCAL_WRITE, \
             and the device has to store there {element}"
        ),
        "QP <READER> send request 0x53 (SEND, 8 bytes) failed with REM_OP_ERR at PSN 0x000064: the peer \
        accepted it and \
         could not carry it out: the completion of its receive request says why"
            .to_owned(),
        format!(
            "still in use: protection domain {} is used by memory region of lkey <FOREIGN>; destroy what \
            uses it first",
            number("OTHERPD")
        ),
        "QP <NARROW> dropped the message at PSN 0x000064: the message is longer than its receive request; \
         receive request 0x54 has room for 8 bytes, a datagram of 8 needs 48: 40 for the GRH come in front"
            .to_owned(),
        format!(
            "QP <MISSING> dropped UD_SEND_ONLY from {address} at PSN 0x000065: this process has no such \
            queue pair; is the number right that the sender was told (dest_qp_num, or remote_qpn of a \
            datagram)?"
        ),
        "QP <DEAF> dropped a datagram of QP <CALLER>: its Q_Key is 0x00000008, this queue pair's \
        0x00000007"
            .to_owned(),
    ] {
        let line = format!("pumice: {expected}");
        assert_eq!(lines.iter().filter(|found| **found == line).count(), 1, "{line}\n---\n{all}");
    }
    let starting = |begin: &str, end: &str| {
        let begin = format!("pumice: QP {begin}");
        lines.iter().filter(|line| line.starts_with(&begin) && line.ends_with(end)).count()
    };
    assert_eq!(
        starting("<DEAF> dropped the message at PSN 0x", ": no receive request is posted"),
        1,
        "{all}"
    );
    let more = "pumice: 49 more like this: QP <DEAF> dropped the message at PSN 0x";
    assert_eq!(lines.iter().filter(|line| line.starts_with(more)).count(), 1, "{all}");
    // Each transmission to the queue pair that is not there: what comes again is counted.
    let missing = "no process of this host has such a queue pair number: its process has ended, or the \
                   sender was told a wrong dest_qp_num";
    for opcode in ["RC_SEND_ONLY", "RC_RDMA_READ_REQUEST"] {
        assert_eq!(starting(&format!("0xfe0123 dropped {opcode} from "), missing), 1, "{all}");
        let more = format!("pumice: 1 more like this: QP 0xfe0123 dropped {opcode} from ");
        assert_eq!(lines.iter().filter(|line| line.starts_with(&more)).count(), 1, "{all}");
    }
    assert_eq!(lines.len(), 23 + 1 + 4, "{all}");
}

#[test]
fn nothing_is_printed_where_the_log_is_off() {
    let Some(program) = mistakes() else { return };
    let quiet = |level: Option<&str>| {
        let mut command = kit::on(kit::address(), program);
        command.env_remove("PUMICE_EXPLAIN");
        if let Some(level) = level {
            command.env("PUMICE_LOG", level);
        }
        let output = command.output().expect("timeout(1) runs");
        kit::succeeded("sentences", &output);
        sentences(&output)
    };
    assert_eq!(quiet(Some("off")), Vec::<String>::new());
    // Standard error is no terminal here, as in CI.
    let usual = quiet(None);
    assert!(usual.iter().any(|line| line.contains("GID index 1024 beyond a table of 1024")), "{usual:?}");
    let errors = quiet(Some("error"));
    assert!(
        errors.len() == 11
            && errors.iter().all(|line| line.contains("failed") || line.contains("refused the peer")),
        "{errors:?}"
    );
}

#[test]
fn what_prevents_the_device_from_opening_is_printed_at_every_level() {
    if !kit::exists("ibv_devinfo") {
        return kit::skip("no ibv_devinfo: apt-get install ibverbs-utils");
    }
    let address = kit::address();
    let refused = |variable: &str, value: &str| {
        let mut command = kit::on(address, "ibv_devinfo");
        let output = command.env("PUMICE_LOG", "off").env(variable, value).output().expect("timeout(1) runs");
        assert!(!output.status.success(), "{variable}={value}: {output:?}");
        stderr(&output).lines().filter(|line| line.starts_with("pumice: ")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        refused("PUMICE_LOSS", "5"),
        "pumice: PUMICE_LOSS=5: it is more than 100 %; did you mean a percentage, with % behind it?"
    );
    assert_eq!(
        refused("PUMICE_ADDR", "192.0.2.77"),
        "pumice: PUMICE_ADDR=192.0.2.77: it is no address of this host: `ip address` lists those that are, \
        and \
         all of 127.0.0.0/8 is"
    );
    let profile = refused("PUMICE_PROFILE", "mlx5");
    assert!(
        profile.starts_with("pumice: PUMICE_PROFILE=mlx5: it is neither a built-in profile"),
        "{profile}"
    );
    let capture = refused("PUMICE_CAPTURE", "/no/such/folder/a.pcapng");
    assert!(
        capture.starts_with(
            "pumice: PUMICE_CAPTURE=/no/such/folder/a.pcapng: packets cannot be captured there: "
        ),
        "{capture}"
    );
    let held = UdpSocket::bind((address, 4791)).expect("no other program has the address");
    let taken = refused("PUMICE_SEED", "1");
    assert_eq!(taken.lines().count(), 1, "{taken}");
    assert!(
        taken.starts_with(&format!(
            "pumice: UDP port 4791 on {address} is taken by a process of this user (uid "
        )) && taken
            .ends_with("; stop it, choose another local address, or use a network namespace of its own"),
        "{taken}"
    );
    drop(held);
}

#[test]
fn debug_prints_every_step_with_process_queue_pair_request_and_psn() {
    let Some(program) = mistakes() else { return };
    let output =
        kit::on(kit::address(), program).env("PUMICE_LOG", "debug").output().expect("timeout(1) runs");
    kit::succeeded("sentences", &output);
    let steps: Vec<String> = sentences(&output)
        .into_iter()
        .filter(|line| line.contains("  pid ") && line.contains("  qp "))
        .collect();
    for expected in [
        "qp <LONELY>  state RESET to INIT",
        "qp <LONELY>  state RTR to RTS",
        "qp <LONELY>  post SEND  wr_id 0x77  psn 5  1 packets  8 B",
        "qp <LONELY>  timer expired  psn 5  1 retries left",
        "qp <LONELY>  send again  psn 5  1 packets",
        "qp <LONELY>  complete SEND  wr_id 0x77  RETRY_EXC_ERR  cq ",
        "qp <LONELY>  state RTS to ERR",
        "qp <EAGER>  receiver not ready  psn 100  1 retries left",
        "qp <READ>  post RECV  wr_id 0x52  8 B",
    ] {
        assert!(steps.iter().any(|line| line.contains(expected)), "{expected}\n{}", steps.join("\n"));
    }
}

#[test]
fn a_conversation_on_the_same_socket_is_not_disturbed() {
    let Some(program) = mistakes() else { return };
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    let end = |end: &std::os::unix::net::UnixStream| -> std::process::Stdio {
        std::os::fd::OwnedFd::from(end.try_clone().expect("a descriptor")).into()
    };
    let mut command = kit::on(kit::address(), program);
    command.env_remove("PUMICE_EXPLAIN").stdin(end(&theirs)).stderr(end(&theirs));
    let output = command.stdout(std::process::Stdio::piped()).output().expect("timeout(1) runs");
    assert!(output.status.success(), "{output:?}");
    drop((command, theirs));
    let mut output_text = String::new();
    std::io::Read::read_to_string(&mut &ours, &mut output_text).expect("the other end is closed");
    assert!(!output_text.contains("pumice: "), "{output_text}");
}
