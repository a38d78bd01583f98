//! The conversations of the fuzz target, made from seeds: most of what they say is almost right.

use crate::link::Random;
use crate::script::survive;

const CONVERSATIONS: u64 = 4000;

/// A script whose messages name ids that exist, or nearly.
fn script(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(60) {
        let what = random.below(16) as u8;
        let argument = if random.chance(700) { random.below(20) as u8 } else { random.next() as u8 };
        if what > 5 {
            bytes.extend([what, argument]);
            continue;
        }
        // So many bytes of the message follow: a multiple of 16 with the same meaning.
        let length = what + 16 * random.below(14) as u8;
        bytes.extend([length, argument]);
        let mut message: Vec<u8> = (0..length).map(|_| 0).collect();
        let mut put = |offset: usize, value: &[u8]| {
            let room = message.iter_mut().skip(offset);
            room.zip(value).for_each(|(to, from)| *to = *from);
        };
        // The sender's id and ours; the service of a REQ begins where a REP's Q_Key is.
        put(0, &(1 + random.below(6) as u32).to_be_bytes());
        put(4, &(1 << 24 | random.below(20) as u32).to_be_bytes());
        put(8, &random.pick(&[0x0106_0001_u64, 0x0111_0001, 0x0111_0002, 0]).to_be_bytes());
        // Where a REQ says which MTU, and to whom.
        put(50, &[0x30]);
        put(72, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        if random.chance(800) {
            // The addresses of RDMA-CM.
            put(140, &[0, 0x40, 0, 1]);
            put(140 + 16, &[10, 0, 0, random.below(3) as u8]);
        }
        for _ in 0..random.below(4) {
            put(random.below(232) as usize, &[random.next() as u8]);
        }
        bytes.extend(message);
    }
    bytes
}

#[test]
fn whatever_is_said_nothing_panics_and_nothing_stays() {
    for seed in 1..=CONVERSATIONS {
        let mut random = Random(seed);
        let script = script(&mut random);
        let noise: Vec<u8> = (0..random.below(600)).map(|_| random.next() as u8).collect();
        let outcome = std::panic::catch_unwind(|| {
            survive(&script);
            survive(&noise);
        });
        if let Err(failure) = outcome {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(failure);
        }
    }
}

#[test]
fn the_corpus_of_the_fuzz_target_and_its_mutants() {
    let fuzz = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz"));
    crate::replay::replay(fuzz, "cm", 20_000, |script| {
        survive(script);
        script.len()
    });
}
