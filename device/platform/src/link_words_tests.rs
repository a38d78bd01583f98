use super::*;

fn parse(text: &str) -> LinkSettings {
    LinkSettings::parse(text).unwrap()
}

#[test]
fn a_line_says_both_directions_or_one() {
    let link = parse("rate=10Gbit, delay=5us,jitter=1us,queue=256KiB,ecn=64KiB");
    let egress = DirectionSettings {
        rate_bits_per_second: Some(10_000_000_000),
        delay_ns: Some(5_000),
        jitter_ns: Some(1_000),
        queue_bytes: Some(262_144),
        ecn: None,
    };
    let ingress = DirectionSettings { ecn: Some(EcnMarking::Above(65_536)), ..egress };
    assert_eq!(link, LinkSettings { egress, ingress });
    let link = parse("egress.rate=1G,rate=2G,ingress.delay=1ms");
    assert_eq!(link.egress.rate_bits_per_second, Some(1_000_000_000));
    assert_eq!(link.ingress.rate_bits_per_second, Some(2_000_000_000));
    assert_eq!((link.egress.delay_ns, link.ingress.delay_ns), (None, Some(1_000_000)));
    let ramp = EcnMarking::Ramp { min_bytes: 20_480, max_bytes: 204_800, most_ppm: 100_000 };
    assert_eq!(parse("ecn=20KiB..200KiB@10%").ingress.ecn, Some(ramp));
    assert_eq!(parse(" "), LinkSettings::default());
}

#[test]
fn what_is_said_of_a_device_goes_before_what_is_said_of_all() {
    let link = parse("delay=1us,ingress.rate=1G").or(&parse("rate=2G,delay=9us,ecn=64KiB"));
    assert_eq!(link, parse("delay=1us,ingress.rate=1G,egress.rate=2G,ecn=64KiB"));
}

#[test]
fn a_wrong_part_is_named_with_its_remedy() {
    for (text, sentence) in [
        ("fast", "\"fast\" says nothing of a link: write it as rate=10Gbit,delay=5us"),
        ("rate=fast", "rate=fast: fast is no rate from 1Kbit to 10Tbit in a second: write it as 10Gbit"),
        ("rate=1G,delay=5", "delay=5: 5 is no time: write it as 500ns, 200us"),
        ("delay=11s", "delay=11s: 11s is too long: write at most 10s"),
        ("queue=1KiB", "queue=1KiB: 1KiB is no size from 9KiB to 64MiB: write it as 256KiB"),
        ("ecn=much", "ecn=much: much is no threshold: write it as 64KiB"),
        ("ecn=2KiB..1KiB@1%", "write the smaller size first"),
        ("ecn=1KiB..2KiB@200%", "200%: it is more than 100 %"),
        ("egress.ecn=64KiB", "the adapter's own queue, that of egress, marks nothing"),
        ("speed=1G", "speed=1G: a link has the words rate, delay, jitter, queue and ecn"),
        ("up.rate=1G", "up.rate=1G: a link has the words"),
        ("ingress.speed=1G", "ingress.speed=1G: a link has the words"),
    ] {
        let said = LinkSettings::parse(text).unwrap_err();
        assert!(said.contains(sentence), "{said:?} without {sentence:?}");
    }
    for (text, sentence) in [
        ("queue=64KiB,delay=1us", "egress has queue and no rate"),
        ("ecn=64KiB", "ingress has ecn and no rate"),
        ("rate=1G,queue=64KiB,ecn=64KiB", "ecn marks above 65536 bytes, and the queue has 65536"),
    ] {
        let said = parse(text).check().unwrap_err();
        assert!(said.contains(sentence), "{said:?} without {sentence:?}");
    }
    assert_eq!(parse("rate=1G,queue=64KiB,ecn=63KiB").check(), Ok(()));
}

#[test]
fn a_table_says_the_same_as_a_line() {
    let table = "rate = \"10Gbit\"\ndelay = \"5us\"\negress = { rate = \"1Gbit\" }\ningress.queue = \"1MiB\"";
    let link: LinkSettings = toml::from_str(table).unwrap();
    assert_eq!(link, parse("rate=10Gbit,delay=5us,egress.rate=1Gbit,ingress.queue=1MiB"));
    for (table, sentence) in [
        ("rate = 10", "rate of a link is a text with a unit, such as rate = \"10Gbit\""),
        ("egress = { delay = 5 }", "egress.delay of a link is a text with a unit"),
        ("rate = \"10\"", "link: rate=10: 10 is no rate"),
        ("egress = { ecn = \"1KiB\" }", "marks nothing"),
    ] {
        let said = toml::from_str::<LinkSettings>(table).unwrap_err().to_string();
        assert!(said.contains(sentence), "{said:?} without {sentence:?}");
    }
}

#[test]
fn a_link_is_written_as_it_is_read() {
    for text in [
        "rate=10000000Kbit,delay=5000ns",
        "egress.rate=1234.567Kbit,ingress.rate=9000Kbit,jitter=7ns,ingress.queue=65536",
        "ingress.ecn=20480..204800@10.0001%",
        "ingress.ecn=65536",
        "",
    ] {
        assert_eq!(parse(text).to_string(), text);
    }
    for text in ["rate=1Kbit", "rate=9.999999999999Tbit,delay=10s,queue=64MiB,ecn=1KiB..2MiB@100%"] {
        assert_eq!(parse(&parse(text).to_string()), parse(text), "{text}");
    }
}
