//! SHA-256 (FIPS 180-4) in base64, by which a page names the script that it allows.
//!
//! The browser computes the same digest, and runs nothing if it differs.

/// Returns `sha256-` and the digest of a text in base64, as a Content-Security-Policy names it.
pub(super) fn source_name(text: &str) -> String {
    format!("sha256-{}", base64(&digest(text.as_bytes())))
}

/// Returns the first `count` prime numbers.
fn primes(count: usize) -> Vec<u32> {
    (2..).filter(|n| (2..*n).all(|divisor| n % divisor != 0)).take(count).collect()
}

/// Returns the first 32 bits of the fraction of a number's root of this degree: the largest `x` with
/// `x^degree` at most `number * 2^(32 * degree)`, without its whole part.
fn fraction_of_root(number: u32, degree: u32) -> u32 {
    // The bits are found from the highest down: the root of any of these primes is below 2^5.
    let mut root: u128 = 0;
    for bit in (0..37).rev() {
        let candidate = root | 1 << bit;
        if candidate.pow(degree) <= u128::from(number) << (32 * degree) {
            root = candidate;
        }
    }
    root as u32
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    let primes = primes(64);
    let rounds: Vec<u32> = primes.iter().map(|prime| fraction_of_root(*prime, 3)).collect();
    let mut state: Vec<u32> = primes.iter().take(8).map(|prime| fraction_of_root(*prime, 2)).collect();
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((bytes.len() + 9).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words: Vec<u32> = block
            .chunks_exact(4)
            .map(|word| word.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
            .collect();
        for i in 16..64 {
            let (early, late) = (words[i - 15], words[i - 2]);
            let early = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
            let late = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
            words.push(words[i - 16].wrapping_add(early).wrapping_add(words[i - 7]).wrapping_add(late));
        }
        let mut turn = state.clone();
        for (word, round) in words.iter().zip(&rounds) {
            let (a, e) = (turn[0], turn[4]);
            let choice = (e & turn[5]) ^ (!e & turn[6]);
            let majority = (a & turn[1]) ^ (a & turn[2]) ^ (turn[1] & turn[2]);
            let of_e = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let of_a = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let first = [of_e, choice, *round, *word].into_iter().fold(turn[7], u32::wrapping_add);
            turn.rotate_right(1);
            turn[4] = turn[4].wrapping_add(first);
            turn[0] = first.wrapping_add(of_a).wrapping_add(majority);
        }
        for (sum, one) in state.iter_mut().zip(turn) {
            *sum = sum.wrapping_add(one);
        }
    }
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0, |number, i| number << 8 | u32::from(*three.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let letter = char::from(LETTERS[(number >> (18 - 6 * i)) as usize & 63]);
            text.push(if i > three.len() { '=' } else { letter });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        // The examples of FIPS 180-4, and lengths around the end of a block.
        assert_eq!(source_name("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
        assert_eq!(source_name(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        let two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(source_name(two_blocks), "sha256-JI1qYdIGOLjlwCaTDD5gOaM85Flk/yFn9uzt1BnbBsE=");
    }
}
