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
    assert_eq!((settings.profile.to_str(), settings.log), (Some("default"), Log::Off));
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
    ])
    .unwrap();
    assert_eq!(parse(&[(SRD_ORDER, "reverse")]).unwrap().srd_order, SrdOrder::Reverse);
    assert_eq!(parse(&[(SRD_ORDER, "in-order")]).unwrap().srd_order, SrdOrder::InOrder);
    assert!(parse(&[(SRD_ORDER, "shuffled")]).is_err());
    assert_eq!(settings.memlock, Some(Memlock::Bytes(65_536)));
    assert_eq!(parse(&[(MEMLOCK, "ulimit")]).unwrap().memlock, Some(Memlock::Ulimit));
    assert_eq!(settings.addresses, ["127.0.0.9".parse::<IpAddr>().unwrap()]);
    assert_eq!(settings.device.as_deref(), Some("mlx5_0"));
    assert_eq!((settings.loss_ppm, settings.seed), (10_000, Some(16)));
    assert_eq!(settings.shuffle, Some(7));
    let check = settings.check.unwrap();
    assert!(check.looks_for_slow && check.format == Some(pumice_events::findings::ReportFormat::Sarif));
    assert!(!check.poisons);
    let both = parse(&[(CHECK, "poison,perf")]).unwrap().check.unwrap();
    assert!(both.poisons && both.looks_for_slow && parse(&[(CHECK, "perf,")]).is_err());
    assert!(parse(&[(CHECK, "yes")]).is_err() && parse(&[(CHECK, "0")]).unwrap().check.is_none());
    assert_eq!(settings.capture, Some(PathBuf::from("/tmp/a.pcapng")));
    assert_eq!(settings.trace, Some(PathBuf::from("/tmp/a-%p.trace")));
    assert_eq!(settings.trace_limit_bytes, Some(2 << 30));
    assert_eq!((settings.profile.to_str(), settings.log), (Some("rxe"), Log::Debug));
    assert_eq!(parse(&[(ADDR, "[::1]")]).unwrap().addresses, ["::1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn a_free_standard_error_and_the_older_variable_mean_warnings_and_a_level_wins() {
    assert_eq!(parse_on(true, &[]).unwrap().log, Log::Warn);
    assert_eq!(parse_on(true, &[(LOG, "off")]).unwrap().log, Log::Off);
    assert_eq!(parse(&[(EXPLAIN, "1")]).unwrap().log, Log::Warn);
    assert_eq!(parse(&[(EXPLAIN, "0")]).unwrap().log, Log::Off);
    assert_eq!(parse(&[(EXPLAIN, "1"), (LOG, "error")]).unwrap().log, Log::Error);
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

#[test]
fn a_plan_is_read_from_its_file_its_lines_and_the_loss() {
    let file = std::env::temp_dir().join(format!("pumice-plan-{}.toml", std::process::id()));
    std::fs::write(&file, "seed = 7\n[[rule]]\nname = \"loss\"\ndo = \"drop\"\n").unwrap();
    let path = file.to_str().unwrap();
    let load = |variables: &[(&'static str, &str)]| parse(variables).unwrap().load_faults();
    let names = |plan: &pumice_faults::FaultPlan| -> Vec<String> {
        plan.rules().iter().map(|rule| rule.name.clone()).collect()
    };
    let plan = load(&[(FAULTS, path), (FAULT, "mark qp=0\n\ndrop qp=1")]).unwrap();
    assert_eq!((plan.seed(), names(&plan)), (7, ["loss", "mark", "drop"].map(str::to_owned).to_vec()));
    assert_eq!(load(&[(FAULTS, path), (SEED, "9")]).unwrap().seed(), 9);
    let plan = load(&[(LOSS, "1%")]).unwrap();
    assert_eq!((plan.seed(), names(&plan)), (DEFAULT_SEED, vec!["loss".to_owned()]));
    let error = load(&[(FAULTS, path), (LOSS, "1%")]).unwrap_err().to_string();
    assert!(error.ends_with("the plan has a rule \"loss\" already: give it another name"), "{error}");
    let error = load(&[(FAULT, "drop qpn=0")]).unwrap_err().to_string();
    assert!(error.starts_with("PUMICE_FAULT=drop qpn=0: qpn is no field of drop"), "{error}");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(load(&[(FAULTS, path)]).unwrap_err().errno, libc::ENOENT);
}
