//! Values of each variable, right and wrong.

use std::collections::HashMap;
use std::ffi::OsString;

use super::*;

fn parse(variables: &[(&'static str, &str)]) -> Result<Settings, SettingError> {
    parse_on(false, variables)
}

fn parse_on(free: bool, variables: &[(&'static str, &str)]) -> Result<Settings, SettingError> {
    let map: HashMap<_, _> = variables.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
    Settings::parse(|name| map.get(name).cloned(), free)
}

#[test]
fn nothing_said_means_the_plain_device() {
    let settings = parse(&[]).unwrap();
    assert_eq!((settings.device.as_deref(), settings.devices), (None, None));
    assert!(settings.addresses.is_empty());
    assert_eq!((settings.loss_ppm, settings.capture.as_ref()), (0, None));
    assert_eq!((settings.profile.to_str(), settings.log), (Some("default"), LogLevel::Off));
    assert_eq!(settings.shuffle, None);
    let empty: Vec<_> = VARIABLES.iter().map(|name| (*name, "")).collect();
    assert_eq!(parse(&empty).unwrap(), settings);
}

#[test]
fn variables_that_are_nearly_right_are_known_and_others_are_left_alone() {
    assert_eq!(misspelt("PUMICE_LOS"), Some(LOSS));
    assert_eq!(misspelt("PUMICE_FAULT_REPROT"), Some(FAULT_REPORT));
    for name in ["PUMICE_LOSS", "PUMICE_PYTHON", "PUMICE_SYSFS", "PUMICE_LIBRARY", "LOS", "PUMICE_"] {
        assert_eq!(misspelt(name), None, "{name}");
    }
}

#[test]
fn every_variable_is_understood() {
    let settings = parse(&[
        (ADDR, "127.0.0.9"),
        (DEVICE, "mlx5_0"),
        (LOSS, "1%"),
        (SEED, "0x10"),
        (SHUFFLE, "7"),
        (CAPTURE, "/tmp/a.pcapng"),
        (TRACE, "/tmp/a-%p.trace"),
        (TRACE_LIMIT, "2GiB"),
        (PROFILE, "rxe"),
        (CHECK, "perf"),
        (CHECK_FORMAT, "sarif"),
        (LOG, "debug"),
        (MEMLOCK, "64KiB"),
        (NO_NEIGHBOUR, "192.0.2.7"),
    ])
    .unwrap();
    assert_eq!(parse(&[]).unwrap().copy, CopyMode::Auto);
    for mode in [CopyMode::Auto, CopyMode::Cached, CopyMode::Streaming] {
        assert_eq!(parse(&[(COPY, mode.name())]).unwrap().copy, mode);
    }
    assert!(parse(&[(COPY, "kernel")]).is_err());
    assert_eq!(parse(&[(SRD_ORDER, "reverse")]).unwrap().srd_order, SrdOrder::Reverse);
    assert_eq!(parse(&[(SRD_ORDER, "in-order")]).unwrap().srd_order, SrdOrder::InOrder);
    assert!(parse(&[(SRD_ORDER, "shuffled")]).is_err());
    assert_eq!(parse(&[(MRC_PORT, "4971")]).unwrap().mrc_port, 4971);
    assert!(parse(&[(MRC_PORT, "4792")]).is_err());
    assert_eq!(settings.memlock, Some(MemlockLimit::Bytes(65_536)));
    assert_eq!(settings.no_neighbour, Some(NoNeighbour::Of(vec![[192, 0, 2, 7].into()])));
    assert!(parse(&[(NO_NEIGHBOUR, "none")]).is_err());
    assert_eq!(parse(&[(MEMLOCK, "ulimit")]).unwrap().memlock, Some(MemlockLimit::Ulimit));
    assert_eq!(settings.addresses, ["127.0.0.9".parse::<IpAddr>().unwrap()]);
    assert_eq!(settings.device.as_deref(), Some("mlx5_0"));
    assert_eq!((settings.loss_ppm, settings.seed), (10_000, Some(16)));
    assert_eq!(settings.shuffle, Some(7));
    let check = settings.check.unwrap();
    assert!(check.checks_performance && check.format == Some(crate::findings::ReportFormat::Sarif));
    assert!(!check.poisons);
    let both = parse(&[(CHECK, "poison,perf")]).unwrap().check.unwrap();
    assert!(both.poisons && both.checks_performance && parse(&[(CHECK, "perf,")]).is_err());
    assert!(parse(&[(CHECK, "yes")]).is_err() && parse(&[(CHECK, "0")]).unwrap().check.is_none());
    assert_eq!(settings.capture, Some(PathBuf::from("/tmp/a.pcapng")));
    assert_eq!(settings.trace, Some(PathBuf::from("/tmp/a-%p.trace")));
    assert_eq!(settings.trace_limit_bytes, Some(2 << 30));
    assert_eq!((settings.profile.to_str(), settings.log), (Some("rxe"), LogLevel::Debug));
    assert_eq!(parse(&[(ADDR, "[::1]")]).unwrap().addresses, ["::1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn a_free_standard_error_and_the_older_variable_mean_warnings_and_a_level_wins() {
    assert_eq!(parse_on(true, &[]).unwrap().log, LogLevel::Warn);
    assert_eq!(parse_on(true, &[(LOG, "off")]).unwrap().log, LogLevel::Off);
    assert_eq!(parse(&[(EXPLAIN, "1")]).unwrap().log, LogLevel::Warn);
    assert_eq!(parse(&[(EXPLAIN, "0")]).unwrap().log, LogLevel::Off);
    assert_eq!(parse(&[(EXPLAIN, "1"), (LOG, "error")]).unwrap().log, LogLevel::Error);
}

#[test]
fn wrong_values_are_refused_in_a_sentence() {
    for (variable, value, sentence) in [
        (
            ADDR,
            "localhost",
            "PUMICE_ADDR=localhost: it is not an IP address: write it as 192.0.2.7 or 2001:db8::7",
        ),
        (LOSS, "5", "PUMICE_LOSS=5: it is more than 100 %; did you mean a percentage, with % behind it?"),
        (SEED, "-1", "PUMICE_SEED=-1: a seed is a whole number from 0 to 18446744073709551615, like 7"),
        (SHUFFLE, "x", "PUMICE_SHUFFLE=x: a seed is a whole number from 0 to 18446744073709551615, like 7"),
        (LOG, "loud", "PUMICE_LOG=loud: the levels are off, error, warn, info, debug"),
        (
            DEVICE,
            "a/b",
            "PUMICE_DEVICE=a/b: a device is named with at most 59 letters, digits, '_' and '-', like pumice0",
        ),
    ] {
        let error = parse(&[(variable, value)]).unwrap_err();
        assert_eq!(error.to_string(), sentence);
        assert_eq!(error.errno, libc::EINVAL);
    }
    assert!(parse(&[(DEVICE, &"x".repeat(60))]).is_err());
}

#[test]
fn processes_lose_different_packets_and_the_same_ones_every_time() {
    let tag = |variables: &[(&'static str, &str)], command: &[&str]| {
        parse(variables).unwrap().tag_of(command.iter().map(OsString::from))
    };
    let server = tag(&[], &["/usr/bin/pingpong"]);
    assert_eq!(server, "pingpong-8602eb6e", "it must not change between versions");
    assert_eq!(server, tag(&[(SEED, "7")], &["pingpong"]));
    assert_ne!(server, tag(&[], &["pingpong", "localhost"]));
    assert_ne!(server, tag(&[(ADDR, "127.0.0.2")], &["pingpong"]));
    assert_ne!(tag(&[], &["a", "ab", "c"]), tag(&[], &["a", "a", "bc"]));
    assert_eq!(tag(&[(TAG, "client")], &["pingpong"]), "client");
}
