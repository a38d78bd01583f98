//! The options of `pumice stat`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pumice_transport::path::ROCE_PORT;

/// Options of `pumice stat`.
#[derive(Debug, Default, Args)]
pub(crate) struct StatOptions {
    /// Print JSON instead of text: one array; with --watch one object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Print counters that are 0 as well, and all queue pairs
    #[arg(long)]
    pub(crate) all: bool,
    /// Show only the process with this number
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Print what each process does per second, again and again
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    #[arg(value_parser = seconds)]
    pub(crate) watch: Option<Duration>,
    /// With --watch: end after this many intervals
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) count: Option<u64>,
    /// Answer Prometheus: metrics over HTTP, on loopback, for programs of this user
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:9464")]
    #[arg(value_parser = loopback, conflicts_with_all = ["json", "all", "watch"])]
    pub(crate) listen: Option<SocketAddr>,
    /// With --listen: add series for each queue pair, for this many queue pairs at most
    #[arg(long, value_name = "MOST", requires = "listen", num_args = 0..=1, default_missing_value = "100")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) per_qp: Option<u16>,
    /// With --listen: answer programs of the user with this number, too
    #[arg(long, value_name = "UID", requires = "listen")]
    pub(crate) allow_user: Vec<u32>,
    /// The UDP port that the processes share
    #[arg(long, default_value_t = ROCE_PORT)]
    pub(crate) port: u16,
    /// Folder of the registry of processes, if it is not the usual one
    #[arg(long, hide = true)]
    pub(crate) registry: Option<PathBuf>,
}

/// Parses an address of loopback with a port. Other addresses would show this user's processes to the
/// network.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let address: SocketAddr = address.parse().map_err(|_| {
        format!("\"{text}\" is not an address with a port, like 127.0.0.1:9464 or [::1]:9464")
    })?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    Err(format!(
        "{} is not an address of loopback: metrics are for programs on this host, and another host sees \
         what a program here forwards",
        address.ip()
    ))
}

/// Parses a time between two snapshots.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("\"{text}\" is not a time from 0.1 to 3600 seconds");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_loopback_are_listened_on() {
        for (text, address) in [
            ("127.0.0.1:9464", "127.0.0.1:9464"),
            ("127.8.8.8:0", "127.8.8.8:0"),
            ("localhost:80", "127.0.0.1:80"),
            ("[::1]:9464", "[::1]:9464"),
        ] {
            assert_eq!(loopback(text).map(|address| address.to_string()).as_deref(), Ok(address));
        }
        for text in ["0.0.0.0:9464", "[::]:9464", "10.0.0.1:1", "[::ffff:127.0.0.1]:1"] {
            let refusal = loopback(text).expect_err(text);
            assert!(refusal.contains("is not an address of loopback"), "{refusal}");
        }
        for text in ["", "9464", "127.0.0.1", "localhost", "::1:9464", "127.0.0.1:99999"] {
            assert!(loopback(text).is_err_and(|refusal| refusal.contains("with a port")), "{text}");
        }
    }

    #[test]
    fn times_are_seconds() {
        assert_eq!(seconds("1"), Ok(Duration::from_secs(1)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["", "0", "-1", "nan", "1e9", "1s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
