//! The built-in profiles, and what is wrong with others.

use pumice_platform::limits::Limits;

use super::*;
use crate::settings::{DEVICE, PROFILE, Settings};

#[test]
fn the_file_of_the_default_profile_says_what_the_device_is() {
    assert_eq!(Profile::parse(BUILT_IN[0].text), Ok(Profile::default()));
    assert_eq!(Profile::parse(""), Ok(Profile::default()));
}

/// A file without a row in `profiles!` would be a profile that no user can name. The compiler asks for the
/// file of a row.
#[test]
fn each_profile_has_a_row_and_says_what_it_is() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/profile");
    let names =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: Vec<String> = names.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect();
    let missing: Vec<&String> = files.iter().filter(|name| BuiltIn::of(name).is_none()).collect();
    assert!(files.len() >= 8 && missing.is_empty(), "without a row in built_in.rs: {missing:?}");
    for profile in BUILT_IN {
        assert!(Profile::parse(profile.text).is_ok(), "{}: {:?}", profile.name, Profile::parse(profile.text));
        let devices = Profile::parse(profile.text).unwrap().devices;
        assert_eq!(profile.device_count(), devices.len(), "{}", profile.name);
        assert!(profile.remark().ends_with('.'), "{} has no sentence at its beginning", profile.name);
    }
}

#[test]
fn built_in_profiles_are_right_and_differ() {
    let of = |name: &str| {
        let variable = |asked| (asked == PROFILE).then(|| name.into());
        Settings::parse(variable, false).unwrap().load_profile().unwrap()
    };
    assert_eq!(of("default"), Profile::default());
    let rxe = of("rxe");
    assert_eq!((rxe.vendor_id, rxe.limits.max_cqe, rxe.limits.max_srq_sge), (0xff_ffff, 32_767, 27));
    // `ibv_devinfo -v` shows these for rdma_rxe.
    assert_eq!(rxe.capabilities.bits(), 0x0122_3c76);
    assert!(!rxe.capabilities.has_xrc());
    let connectx = of("connectx");
    assert_eq!((connectx.vendor_id, connectx.part_id, connectx.limits.max_rd_atomic), (0x02c9, 4119, 16));
    assert_eq!((connectx.port.speed as u32, connectx.port.width.verbs_number()), (32, 2));
    assert!(connectx.capabilities.has_xrc() && connectx.capabilities.has_memory_windows());
    assert_eq!((connectx.max_mr_size, connectx.page_size_cap), (u64::MAX, !0xfff));
}

#[test]
fn a_device_that_is_named_after_a_personality_is_one() {
    let is_one = |profile: &&BuiltIn| !Profile::parse(profile.text).unwrap().driver.is_empty();
    for BuiltIn { name, .. } in BUILT_IN.iter().filter(is_one) {
        let variable = |asked| (asked == DEVICE).then(|| name.into());
        let settings = Settings::parse(variable, false).unwrap();
        assert_eq!((settings.device.as_deref(), settings.profile.to_str()), (None, Some(*name)));
        let profile = settings.load_profile().unwrap();
        assert!(profile.devices.len() == 1, "{name}");
    }
    assert!(BUILT_IN.iter().all(|profile| profile.is_personality() == is_one(&profile)));
    // A named profile wins.
    let variable = |asked| match asked {
        DEVICE => Some("efa".into()),
        PROFILE => Some("rxe".into()),
        _ => None,
    };
    let settings = Settings::parse(variable, false).unwrap();
    assert_eq!((settings.device.as_deref(), settings.profile.to_str()), (Some("efa"), Some("rxe")));
}

#[test]
fn a_profile_says_only_what_differs() {
    let text =
        "vendor_id = 7\n[port]\nmax_mtu = 1024\npkeys = [0xffff, 0x8005]\n[limits]\npkey_table_len = 4\n";
    let profile = Profile::parse(text).unwrap();
    let expected = Profile {
        vendor_id: 7,
        port: PortProfile {
            max_mtu: pumice_transport::types::Mtu::Mtu1024,
            pkeys: vec![0xffff, 0x8005],
            ..PortProfile::default()
        },
        limits: Limits { pkey_table_len: 4, ..Limits::default() },
        ..Profile::default()
    };
    assert_eq!(profile, expected);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, part) in [
        ("vendor = 1", "line 1: unknown field `vendor`"),
        ("\n[limits]\nmax_qps = 1", "line 3: unknown field `max_qps`"),
        ("[limits]\nmax_qp = \"many\"", "line 2: invalid type: string \"many\""),
        ("[limits]\nmax_qp = -1", "line 2: "),
        ("[limits]\nmax_qp = 65537", "limits.max_qp is 65537, and must be from 1 to 65536"),
        ("[limits]\nmax_rd_atomic = 129", "limits.max_rd_atomic is 129, and must be from 1 to 128"),
        ("[limits", "line 1: "),
        ("atomics = \"global\"", "unknown variant `global`"),
        ("capabilities = [\"fast\"]", "no capability is called fast; there are resize_max_wr, "),
        ("[port]\nmax_mtu = 1500", "line 2: a path MTU is 256, 512, 1024, 2048 or 4096, not 1500"),
        ("[port]\nwidth = 3", "a port has 1, 2, 4, 8 or 12 lanes, not 3"),
        ("[port]\npkeys = []", "port.pkeys must not be empty"),
        ("[port]\npkeys = [0xffff, 1]", "port.pkeys has 2 keys, and limits.pkey_table_len has room for 1"),
        ("[port]\npkeys = [0x8000]", "port.pkeys: 0x8000 names no partition"),
        ("[limits]\npkey_table_len = 2\n[port]\npkeys = [5, 0x8005]", "partition of 0x8005 is there twice"),
        (
            "[congestion]\nalgorithm = \"dctcp\"",
            "line 2: unknown variant `dctcp`, expected `window` or `dcqcn`",
        ),
        ("[congestion]\nrpg_gain = 1", "line 2: unknown field `rpg_gain`"),
        (
            "[congestion]\nalgorithm = \"dcqcn\"\nrpg_gd = 9",
            "congestion.rpg_gd is 9, and must be from 10 to 15",
        ),
        ("[congestion]\ncnp_dscp = 64", "congestion.cnp_dscp is 64, and must be from 0 to 63"),
        ("fw_ver = \"a\\nb\"", "fw_ver must have at most 63 printable ASCII characters"),
    ] {
        let sentence = Profile::parse(text).unwrap_err();
        assert!(sentence.contains(part) && !sentence.contains('\n'), "{text}\n{sentence}");
    }
}

#[test]
fn a_profile_that_is_not_there_is_named() {
    let settings = |name: &str| {
        let variable = |asked| (asked == PROFILE).then(|| name.into());
        Settings::parse(variable, false).unwrap()
    };
    let error = settings("mlx5").load_profile().unwrap_err();
    assert_eq!(error.errno, libc::ENOENT);
    let names: Vec<&str> = BUILT_IN.iter().map(|profile| profile.name).collect();
    let begin = format!("PUMICE_PROFILE=mlx5: it is neither a built-in profile ({}) nor", names.join(", "));
    assert!(error.to_string().starts_with(&begin), "{error}");
    assert_eq!(settings("/").load_profile().unwrap_err().errno, libc::EISDIR);
    assert!(settings("/dev/zero").load_profile().is_err());
}

#[test]
fn congestion_control_comes_from_a_preset_the_port_and_what_the_profile_says() {
    use pumice_transport::qp::{Congestion, DcqcnParameters, NotificationParameters};
    let of = |text: &str| {
        let profile = Profile::parse(text).unwrap();
        profile.congestion.of_port(&profile.port)
    };
    assert_eq!(of(""), Congestion::default());
    let four = NotificationParameters { min_time_between_cnps: 4, cnp_dscp: 48 };
    let text = "[port]\nspeed = \"edr\"\nwidth = 4\n[congestion]\nalgorithm = \"dcqcn\"\nrpg_ai_rate = 7\n";
    let expected = DcqcnParameters { rpg_ai_rate: 7, ..DcqcnParameters::CONNECTX };
    assert_eq!(of(text), Congestion::dcqcn(expected, four));
    let text = "[congestion]\nalgorithm = \"dcqcn\"\npreset = \"paper\"\nline_rate = 40000\ncnp_dscp = 6\n";
    let expected = DcqcnParameters { max_burst_bytes: 65_536, ..DcqcnParameters::PAPER };
    let notification = NotificationParameters { min_time_between_cnps: 50, cnp_dscp: 6 };
    assert_eq!(of(text), Congestion::dcqcn(expected, notification));
    // One of several devices has its own.
    let text = "[[device]]\n[[device]]\n[device.congestion]\nalgorithm = \"dcqcn\"\n";
    let profile = Profile::parse(text).unwrap();
    let algorithms: Vec<_> =
        profile.devices.iter().map(|device| profile.with(device).congestion.algorithm).collect();
    assert_eq!(algorithms, [Algorithm::Window, Algorithm::Dcqcn]);
}
