//! `pumice stat --listen`: who gets which answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[path = "metrics/exposition.rs"]
mod exposition;
#[path = "fault/scratch.rs"]
mod scratch;

use exposition::{ParsedFamily, read};
use scratch::{LineDrivenProgram, Scratch, compile};

/// `pumice stat --listen` on a port that the kernel chose.
struct MetricsServer {
    child: Child,
    address: SocketAddr,
}

impl MetricsServer {
    fn start(scratch: &Scratch, options: &[&str]) -> MetricsServer {
        let mut command = scratch.pumice(&["stat", "--listen", "127.0.0.1:0"]);
        let mut child = command.args(options).stdout(Stdio::piped()).spawn().expect("it can be run");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("text");
        let address =
            line.strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics\n"));
        let address = address.unwrap_or_else(|| panic!("{line:?}")).parse().expect("an address");
        MetricsServer { child, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("it listens")
    }

    /// All that is answered to these bytes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // It may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer as text");
        answer
    }

    /// Status, head and body of the answer to a request with these lines.
    fn ask(&self, request: &str, headers: &[&str]) -> (u16, String, String) {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        split(&self.raw(format!("{request} HTTP/1.1\r\n{headers}\r\n").as_bytes()))
    }

    fn metrics(&self) -> String {
        let (status, head, body) = self.ask("GET /metrics", &["Host: localhost"]);
        assert_eq!(status, 200, "{head}{body}");
        body
    }

    fn ends_by(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn split(answer: &str) -> (u16, String, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    (status.unwrap_or_else(|| panic!("{head}")), head.to_owned(), body.to_owned())
}

/// The only sample of a family with this label.
fn value(family: &ParsedFamily, label: (&str, &str)) -> f64 {
    let mut found = family.samples.iter().filter(|(labels, _)| labels[label.0] == label.1);
    let (_, value) = found.next().unwrap_or_else(|| panic!("{label:?}: {family:?}"));
    assert!(found.next().is_none(), "{label:?}: {family:?}");
    *value
}

#[test]
fn a_program_is_seen_as_metrics() {
    let scratch = Scratch::new("metrics-seen");
    let Some(program) = compile(&scratch, "paced") else { return };
    let rule = "drop opcode=send nth=3 name=third";
    let mut paced =
        LineDrivenProgram::alone(&scratch, &program, 51, &["--tag", "a \"tag\"", "--fault", rule]);
    let pid = paced.child.id().to_string();
    let server = MetricsServer::start(&scratch, &["--pid", &pid, "--per-qp"]);
    paced.sends(5);
    let all = read(&server.metrics());
    let one = |name: &str| value(&all[name], ("pid", &pid));
    assert_eq!((one("pumice_process_answers"), all["pumice_processes"].samples.len()), (1.0, 1));
    assert!(one("pumice_tx_packets") >= 6.0 && one("pumice_retransmitted_packets") >= 1.0);
    assert_eq!((one("pumice_send_requests_outstanding"), one("pumice_cq_entries")), (0.0, 0.0));
    let states = &all["pumice_queue_pairs"];
    assert_eq!((value(states, ("state", "RTS")), value(states, ("state", "ERR"))), (1.0, 0.0));
    assert_eq!(value(&all["pumice_rule_applied"], ("rule", "third")), 1.0);
    assert_eq!((one("pumice_qp_sends"), one("pumice_qp_receives")), (5.0, 5.0));
    let (labels, _) = &all["pumice_qp"].samples[0];
    assert_eq!((labels["service"].as_str(), labels["state"].as_str()), ("RC", "RTS"));
    assert_eq!(labels["peer_qp"], labels["qp"], "it sends to itself");
    let process = ["tag", "program", "device"].map(|name| labels[name].as_str());
    assert_eq!(process, ["a \"tag\"", "paced", "pumice0"]);
    paced.sends(2);
    assert_eq!(value(&read(&server.metrics())["pumice_qp_sends"], ("pid", &pid)), 7.0);
    paced.ends();
    let after_exit = read(&server.metrics());
    assert_eq!(after_exit["pumice_processes"].samples[0].1, 0.0);
    assert!(!after_exit.contains_key("pumice_tx_packets"), "{after_exit:?}");
    server.ends_by(Signal::TERM);
}

#[test]
fn queue_pairs_have_no_series_of_their_own_without_the_option() {
    let scratch = Scratch::new("metrics-few");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 52, &["--tag", "one"]);
    paced.sends(1);
    let server = MetricsServer::start(&scratch, &["--pid", &paced.child.id().to_string()]);
    let all = read(&server.metrics());
    assert!(all.contains_key("pumice_queue_pairs"), "{all:?}");
    let with_qp =
        all.values().flat_map(|family| &family.samples).filter(|(labels, _)| labels.contains_key("qp"));
    assert_eq!(with_qp.count(), 0);
    paced.ends();
    server.ends_by(Signal::INT);
}

#[test]
fn the_format_and_the_body_are_those_asked_for() {
    let scratch = Scratch::new("metrics-format");
    let server = MetricsServer::start(&scratch, &[]);
    let (status, head, body) = server.ask("GET /metrics", &["Host: 127.0.0.1:9464", "Accept: */*"]);
    assert_eq!((status, read(&body)["pumice_processes"].samples.len()), (200, 1));
    let has = |head: &str, line: &str| assert!(head.lines().any(|other| other == line), "{line}: {head}");
    has(&head, "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8");
    has(&head, &format!("Content-Length: {}", body.len()));
    let (status, only_head, nothing) = server.ask("HEAD /metrics", &["Host: [::1]"]);
    assert_eq!((status, only_head, nothing), (200, head, String::new()));
    let (status, head, body) = server.ask("GET /metrics", &["Host: localhost", "Accept: text/plain"]);
    has(&head, "Content-Type: text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(status, 200);
    assert!(body.starts_with("# HELP pumice_processes ") && !body.contains("# EOF"), "{body}");
    server.ends_by(Signal::TERM);
}

#[test]
fn hostile_requests_get_a_sentence_and_the_next_client_its_metrics() {
    let scratch = Scratch::new("metrics-hostile");
    let server = MetricsServer::start(&scratch, &[]);
    let local = "Host: localhost";
    let cases: [(&str, &[&str], u16); 9] = [
        ("GET /metrics", &[], 400),
        ("GET /metrics", &[local, local], 400),
        ("GET /metrics", &["Host: pumice.example:9464"], 421),
        ("GET /metrics", &["Host: 127.0.0.1.evil.example"], 421),
        ("POST /metrics", &[local, "Content-Length: 0"], 405),
        ("DELETE /metrics", &[local], 405),
        ("GET /", &[local], 404),
        ("GET /../metrics", &[local], 404),
        ("GET metrics metrics", &[local], 400),
    ];
    for (request, headers, expected) in cases {
        let (status, head, body) = server.ask(request, headers);
        assert_eq!(status, expected, "{request} {headers:?}");
        assert!(body.ends_with('\n') && body.lines().count() == 1 && !body.contains("pumice_"), "{body}");
        assert_eq!(head.contains("Allow: GET, HEAD"), expected == 405);
    }
    let long = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(20_000));
    assert_eq!(split(&server.raw(long.as_bytes())).0, 431);
    assert_eq!(split(&server.raw(&[b'G'; 100_000])).0, 431);
    assert_eq!(split(&server.raw(b"\x16\x03\x01\x00\xff\r\n\r\n")).0, 400);
    // A client that ends in the middle gets nothing.
    let mut cut = server.connect();
    cut.write_all(b"GET /metr").expect("it reads");
    cut.shutdown(Shutdown::Write).expect("a connection");
    let mut nothing = Vec::new();
    cut.read_to_end(&mut nothing).expect("its end");
    assert!(nothing.is_empty());
    read(&server.metrics());
    server.ends_by(Signal::TERM);
}

#[test]
fn slow_clients_are_given_up_and_those_that_are_too_many_are_refused() {
    let scratch = Scratch::new("metrics-slow");
    let server = MetricsServer::start(&scratch, &[]);
    // Each has a slot of its own: the server takes connections in their order.
    let mut slow: Vec<TcpStream> = (0..8).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: local").expect("it reads");
    }
    let mut ninth = String::new();
    server.connect().read_to_string(&mut ninth).expect("an answer");
    assert_eq!(split(&ninth).0, 503, "{ninth}");
    for mut stream in slow {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(split(&answer).0, 408, "{answer}");
    }
    server.ends_by(Signal::TERM);
}

#[test]
fn only_loopback_is_listened_on() {
    let scratch = Scratch::new("metrics-where");
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let output = scratch.pumice(&["stat", "--listen", address]).output().expect("it can be run");
        let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr_text}");
        assert!(stderr_text.contains("is not an address of loopback"), "{stderr_text}");
    }
    let server = MetricsServer::start(&scratch, &[]);
    let taken = server.address.to_string();
    let output = scratch.pumice(&["stat", "--listen", &taken]).output().expect("it can be run");
    let stderr_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr_text}");
    assert!(stderr_text.starts_with(&format!("pumice: nothing can listen on {taken}: ")), "{stderr_text}");
    server.ends_by(Signal::TERM);
}

/// A user who is not ours.
const OTHER_USER: &str = "61002";
/// Says that a test runs in a user namespace already.
const NESTED: &str = "PUMICE_METRICS_NESTED";

/// Whether this process may become another user. If not, the test has run in a user namespace, or is skipped.
fn can_change_user(name: &str) -> bool {
    let able = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
    if rustix::process::geteuid().is_root() {
        if able(Command::new("nsenter").args(["-S", OTHER_USER, "true"])) {
            return true;
        }
    } else if std::env::var_os(NESTED).is_none() {
        let nested = ["--user", "--map-root-user", "--map-auto", "--"];
        if able(Command::new("unshare").args(nested).arg("true")) {
            let own = std::env::current_exe().expect("this program");
            let mut again = Command::new("unshare");
            again.args(nested).arg(own).args([name, "--exact", "--nocapture"]).env(NESTED, "1");
            assert!(again.status().expect("it can be run").success(), "in a user namespace");
            return false;
        }
    }
    let _ = writeln!(std::io::stderr(), "**** SKIPPED: {name}: only root, or others with PUMICE_ISOLATED=no");
    false
}

/// What another user is answered.
fn queried_by_other_user(server: &MetricsServer) -> (u16, String, String) {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{} && \
         printf 'GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && cat <&3",
        server.address.port()
    );
    let output = Command::new("nsenter")
        .args(["-S", OTHER_USER, "-G", OTHER_USER, "bash", "-c", &script])
        .current_dir("/")
        .output()
        .expect("it can be run");
    split(&String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn another_user_gets_metrics_only_if_allowed() {
    if !can_change_user("another_user_gets_metrics_only_if_allowed") {
        return;
    }
    let scratch = Scratch::new("metrics-users");
    let server = MetricsServer::start(&scratch, &[]);
    let (status, _, body) = queried_by_other_user(&server);
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("--allow-user 61002") && !body.contains("pumice_"), "{body}");
    read(&server.metrics());
    server.ends_by(Signal::TERM);
    let server = MetricsServer::start(&scratch, &["--allow-user", OTHER_USER]);
    let (status, _, body) = queried_by_other_user(&server);
    assert_eq!(status, 200, "{body}");
    read(&body);
    read(&server.metrics());
    server.ends_by(Signal::TERM);
}
