//! The devices that settings and profiles describe.

use std::ffi::OsString;

use super::*;
use crate::profile::{BuiltIn, Speed};
use crate::settings::{DEVICE, LinkSettings};

fn interface(index: u32, name: &str, address: &str) -> Interface {
    let address: IpAddr = address.parse().unwrap();
    Interface {
        name: name.to_owned(),
        index,
        up: true,
        carrier: true,
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
                   [[device]]\naddress = \"127.0.0.5\"\nnetdev = \"eth0\"\n\
                   part_id = 4129\nwidth = 2\nmax_mtu = 1024";
    let all = described(&[], profile).unwrap();
    assert_eq!(names_and_addresses(&[], profile), ["mlx5_0 198.51.100.7", "pumice1 127.0.0.5"]);
    assert_eq!((all[0].numa_node, all[1].numa_node), (1, -1));
    assert_eq!((&all[0].netdev, &all[1].netdev), (&None, &Some(("eth0".to_owned(), 2))));
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
fn a_device_with_two_ports_has_an_address_for_each() {
    let ready = Profile::parse(BuiltIn::of("two-port").unwrap().text).unwrap();
    let settings = |variables: &[(&'static str, &str)]| {
        let value = |name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into());
        Settings::parse(value, false).unwrap()
    };
    let laptop = settings(&[]).device_descriptions(&ready, &host()[..2]).unwrap();
    assert_eq!(laptop.len(), 1);
    let ips = |one: &DeviceDescription| -> Vec<String> {
        one.addresses_of_ports().iter().map(IpAddr::to_string).collect()
    };
    assert_eq!(ips(&laptop[0]), ["127.0.0.1", "127.0.0.2"], "one interface is not enough");
    let server = settings(&[]).device_descriptions(&ready, &host()).unwrap();
    assert_eq!(ips(&server[0]), ["192.0.2.7", "198.51.100.7"]);
    let named = settings(&[(ADDR, "127.0.0.8,127.0.0.9")]).device_descriptions(&ready, &host()).unwrap();
    assert_eq!(ips(&named[0]), ["127.0.0.8", "127.0.0.9"]);
    let entries = named[0].gid_entries(&host()).unwrap();
    let addresses = entries.iter().map(|entry| (entry.ip.to_string(), entry.port_num)).collect::<Vec<_>>();
    assert_eq!(addresses, [("127.0.0.8".to_owned(), 1), ("127.0.0.9".to_owned(), 2)]);

    let text = "[port]\nspeed = \"edr\"\n[[device]]\nwidth = 4\n\
                [[device.port]]\naddress = \"127.0.0.5\"\nmax_mtu = 1024\n\
                [[device.port]]\ninterface = \"eth1\"\nspeed = \"sdr\"\npkeys = [0xffff, 0x8005]\n\
                [[device]]\naddress = \"127.0.0.7\"";
    let text = format!("{text}\n[limits]\npkey_table_len = 2");
    let all = described(&[], &text).unwrap();
    assert_eq!(
        (ips(&all[0]), ips(&all[1])),
        (vec!["127.0.0.5".to_owned(), "198.51.100.7".to_owned()], vec![])
    );
    let ports: Vec<&PortProfile> = all[0].ports().collect();
    assert_eq!((ports[0].speed, ports[1].speed), (Speed::Edr, Speed::Sdr));
    assert_eq!((ports[0].width.lanes(), ports[1].width.lanes()), (4, 4));
    assert_eq!((ports[0].max_mtu.bytes(), ports[1].max_mtu.bytes()), (1024, 4096));
    assert_eq!((ports[0].pkeys.len(), ports[1].pkeys.len()), (1, 2));
    assert_eq!(all[1].ports().count(), 1);
    assert_eq!(all[0].counter_address(true), Some([127, 0, 0, 5].into()));
    assert_eq!(described(&[], "").unwrap()[0].counter_address(true), None);
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
        (
            &[],
            &two("pci_address = \"0000:18:00.0\""),
            "pumice0 and pumice1 have the PCI address 0000:18:00.0",
        ),
        (&[], "[[device]]\nnetdev = \"ib9\"", "the network interface ib9 is not there"),
        (
            &[(ADDR, "127.0.0.1")],
            "[[device]]\n[[device.port]]\n[[device.port]]",
            "1 addresses for 2 ports: name one for each port of each device",
        ),
        (
            &[],
            "[[device]]\n[[device.port]]\naddress = \"127.0.0.3\"\n[[device.port]]\naddress = \"127.0.0.3\"",
            "both ports of pumice0 have the address 127.0.0.3",
        ),
        (
            &[],
            "[[device]]\n[[device.port]]\naddress = \"127.0.0.3\"\n[[device.port]]\naddress = \"127.0.0.4\"\n\
             [[device]]\naddress = \"127.0.0.4\"",
            "pumice0 and pumice1 have the address 127.0.0.4",
        ),
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
        ("[[device]]\n[[device.port]]\nspede = \"edr\"", "line 3: unknown field"),
        (
            "[[device]]\n[[device.port]]\n[[device.port]]\n[[device.port]]",
            "device 1: it has 3 ports, and a device has one or two",
        ),
        (
            "[[device]]\naddress = \"127.0.0.1\"\n[[device.port]]",
            "device 1: name the address or the interface in",
        ),
        (
            "[[device]]\n[[device.port]]\n[[device.port]]\naddress = \"127.0.0.1\"\ninterface = \"lo\"",
            "device 1: port 2: name its address or its interface",
        ),
        ("[[device]]\n[[device.port]]\n[[device.port]]\npkeys = []", "device 1: port 2: port.pkeys must not"),
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
