//! Which devices settings and profiles describe.

use std::ffi::OsString;

use super::*;
use crate::settings::{DEVICE, LinkSettings};

fn interface(index: u32, name: &str, address: &str) -> Interface {
    let address: IpAddr = address.parse().unwrap();
    Interface {
        name: name.to_owned(),
        index,
        up: true,
        loopback: address.is_loopback(),
        mtu: 1500,
        addresses: vec![(address, 8)],
        mac: None,
    }
}

fn host() -> [Interface; 3] {
    [interface(1, "lo", "127.0.0.1"), interface(2, "eth0", "192.0.2.7"), interface(3, "eth1", "198.51.100.7")]
}

fn described(
    variables: &[(&'static str, &str)],
    profile: &str,
) -> Result<Vec<DeviceDescription>, SettingError> {
    let value =
        |name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value));
    Settings::parse(value, false)?.device_descriptions(&Profile::parse(profile).unwrap(), &host())
}

fn names_and_addresses(variables: &[(&'static str, &str)], profile: &str) -> Vec<String> {
    let all = described(variables, profile).unwrap().into_iter();
    let address = |one: &DeviceDescription| one.address.map_or("all".to_owned(), |ip| ip.to_string());
    all.map(|one| format!("{} {}", one.name, address(&one))).collect()
}

fn refusal(variables: &[(&'static str, &str)], profile: &str) -> String {
    described(variables, profile).unwrap_err().to_string()
}

#[test]
fn one_device_has_all_addresses_and_several_have_one_each() {
    assert_eq!(names_and_addresses(&[], ""), ["pumice0 all"]);
    assert_eq!(names_and_addresses(&[(DEVICES, "1"), (DEVICE, "rocep1s0f")], ""), ["rocep1s0f all"]);
    assert_eq!(names_and_addresses(&[(ADDR, "127.0.0.9")], ""), ["pumice0 127.0.0.9"]);
    let of_interfaces = ["pumice0 192.0.2.7", "pumice1 198.51.100.7"];
    assert_eq!(names_and_addresses(&[(DEVICES, "2")], ""), of_interfaces);
    let of_loopback = ["mlx5_2 127.0.0.1", "mlx5_3 127.0.0.2", "mlx5_4 127.0.0.3"];
    assert_eq!(names_and_addresses(&[(DEVICES, "3"), (DEVICE, "mlx5_2")], ""), of_loopback);
    let named = [(DEVICES, "2"), (ADDR, "127.0.0.8, ::1"), (DEVICE, "rail")];
    assert_eq!(names_and_addresses(&named, ""), ["rail0 127.0.0.8", "rail1 ::1"]);
}

#[test]
fn a_profile_describes_devices() {
    let profile = "vendor_id = 0x02c9\n[port]\nspeed = \"edr\"\nwidth = 4\n\
                   [[device]]\nname = \"mlx5_0\"\ninterface = \"eth1\"\nnuma_node = 1\n\
                   pci_address = \"0000:18:00.0\"\nnode_guid = \"0c42:a103:0065:1a90\"\n\
                   [[device]]\naddress = \"127.0.0.5\"\npart_id = 4129\nwidth = 2\nmax_mtu = 1024";
    let all = described(&[], profile).unwrap();
    assert_eq!(names_and_addresses(&[], profile), ["mlx5_0 198.51.100.7", "pumice1 127.0.0.5"]);
    assert_eq!((all[0].numa_node, all[1].numa_node), (1, -1));
    assert_eq!((all[0].pci_address.as_deref(), all[1].pci_address.as_deref()), (Some("0000:18:00.0"), None));
    assert_eq!(all[0].guid(false, &host(), &[]), [0x0c, 0x42, 0xa1, 0x03, 0x00, 0x65, 0x1a, 0x90]);
    assert_eq!((all[0].profile.port.width.lanes(), all[1].profile.port.width.lanes()), (4, 2));
    assert_eq!((all[1].profile.vendor_id, all[1].profile.part_id), (0x02c9, 4129));
    let gids = |one: &DeviceDescription| one.gid_entries(&host()).unwrap();
    assert_eq!((gids(&all[0]).len(), gids(&all[0])[0].interface.as_str()), (1, "eth1"));
    assert_eq!(gids(&all[1])[0].mtu, pumice_transport::types::Mtu::Mtu1024);
    let of = |one: &DeviceDescription| one.guid(false, &host(), &gids(one));
    let plain = described(&[(DEVICES, "2")], "").unwrap();
    assert_ne!(of(&plain[0]), of(&plain[1]), "no two devices have one GUID");
    assert_eq!(names_and_addresses(&[(DEVICES, "1")], profile), ["mlx5_0 198.51.100.7"], "the first of them");
}

#[test]
fn the_link_of_a_device_is_what_the_variable_the_device_and_the_profile_say() {
    let profile = "[link]\nrate = \"10Gbit\"\ndelay = \"5us\"\n[[device]]\n[[device]]\n\
                   link = { rate = \"1Gbit\", ingress = { queue = \"64KiB\" } }";
    let links = |variables| -> Vec<LinkSettings> {
        described(variables, profile).unwrap().into_iter().map(|one| one.link).collect()
    };
    let of = |text| LinkSettings::parse(text).unwrap();
    let both = [of("rate=10Gbit,delay=5us"), of("rate=1Gbit,delay=5us,ingress.queue=64KiB")];
    assert_eq!(links(&[]), both);
    let both = [of("rate=10Gbit,delay=1ms"), of("rate=1Gbit,delay=1ms,ingress.queue=64KiB")];
    assert_eq!(links(&[(LINK, "delay=1ms")]), both);
    assert_eq!(described(&[], "").unwrap()[0].link, LinkSettings::default());
    for (variables, profile, sentence) in [
        (&[(LINK, "rate=1")][..], "", "PUMICE_LINK=rate=1: rate=1: 1 is no rate"),
        (
            &[(LINK, "ecn=64KiB")],
            "",
            "PUMICE_LINK=ecn=64KiB: the link of pumice0: ingress has ecn and no rate",
        ),
        (&[], "[link]\nqueue = \"1MiB\"", "PUMICE_PROFILE=default: the link of pumice0: egress has queue"),
        (
            &[(LINK, "ecn=1MiB")],
            "[link]\nrate = \"1G\"\nqueue = \"1MiB\"",
            "PUMICE_LINK=ecn=1MiB: the link of pumice0: ecn marks above 1048576 bytes",
        ),
    ] {
        let said = refusal(variables, profile);
        assert!(said.contains(sentence), "{said:?} without {sentence:?}");
    }
    let said = Profile::parse("[link]\nrate = 10").unwrap_err();
    assert!(said.contains("rate of a link is a text with a unit"), "{said}");
}

#[test]
fn what_cannot_be_told_apart_or_is_not_there_is_refused() {
    let two = |rest: &str| format!("[[device]]\n{rest}\n[[device]]\n{rest}");
    for (variables, profile, sentence) in [
        (&[(DEVICES, "0")][..], "", "PUMICE_DEVICES=0: a process has 1 to 16 devices"),
        (&[(DEVICES, "17")], "", "PUMICE_DEVICES=17: a process has 1 to 16 devices"),
        (
            &[(DEVICES, "3"), (ADDR, "127.0.0.1,127.0.0.2")],
            "",
            "PUMICE_ADDR=127.0.0.1,127.0.0.2: 2 addresses for 3 devices",
        ),
        (&[(ADDR, "127.0.0.1,127.0.0.2")], "", "2 addresses for 1 devices"),
        (
            &[(DEVICES, "2"), (ADDR, "127.0.0.1,127.0.0.1")],
            "",
            "pumice0 and pumice1 have the address 127.0.0.1",
        ),
        (&[], &two("name = \"x\""), "two devices have the name x"),
        (&[], &two("address = \"127.0.0.3\""), "pumice0 and pumice1 have the address 127.0.0.3"),
        (&[], "[[device]]\ninterface = \"ib9\"", "the network interface ib9 is not there"),
        (&[(DEVICES, "2"), (CHECK, "1")], "", "programs are checked with one device: name no others"),
        (&[(DEVICES, "2"), (RECORD, "/tmp/x")], "", "PUMICE_RECORD=/tmp/x: records are of one device"),
        (&[(DEVICES, "2")], "[[device]]", "it describes 1 devices, and PUMICE_DEVICES asks for 2"),
    ] {
        let said = refusal(variables, profile);
        assert!(said.contains(sentence), "{said:?} without {sentence:?}");
    }
    for (text, problem) in [
        ("[[device]]\nname = \"a b\"", "device 1: name \"a b\""),
        (
            "[[device]]\n[[device]]\naddress = \"127.0.0.1\"\ninterface = \"lo\"",
            "device 2: name its address or",
        ),
        ("[[device]]\npci_address = \"18:00.0\"", "write it as 0000:18:00.0"),
        ("[[device]]\nnode_guid = \"12\"", "line 2: \"12\" is no GUID"),
        ("[[device]]\nwidth = 3", "line 2: a port has 1, 2, 4, 8 or 12 lanes"),
        ("[[device]]\npkeys = []", "device 1: port.pkeys must not be empty"),
        ("[[device]]\nnuma_node = -2", "device 1: numa_node is -2"),
        ("[[device]]\nspede = \"edr\"", "line 2: unknown field"),
    ] {
        let said = Profile::parse(text).unwrap_err();
        assert!(said.contains(problem), "{said:?} without {problem:?}");
    }
}

#[test]
fn an_address_is_looked_for_on_the_host() {
    let on = |address| described(&[(ADDR, address)], "").unwrap()[0].gid_entries(&host());
    assert_eq!(on("192.0.2.7").unwrap()[0].interface, "eth0");
    assert_eq!(on("127.9.9.9").unwrap()[0].interface, "lo");
    let error = on("192.0.2.8").unwrap_err();
    assert_eq!(error.errno, libc::EADDRNOTAVAIL);
    assert!(error.to_string().starts_with("PUMICE_ADDR=192.0.2.8: it is no address of this host"), "{error}");
    let all = |host: &[Interface]| {
        let entries = described(&[], "").unwrap()[0].gid_entries(host).unwrap();
        entries.into_iter().map(|entry| entry.ip.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(all(&host()), ["192.0.2.7", "198.51.100.7"], "loopback is for hosts with nothing else");
    assert_eq!(all(&host()[..1]), ["127.0.0.1"]);
    assert_eq!(on("127.0.0.1").unwrap()[0].interface, "lo");
}
