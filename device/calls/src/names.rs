//! Names in alphabetical order, by which a call is found.

/// Reports whether a name comes before another one.
const fn is_before(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return one[at] < other[at];
        }
        at += 1;
    }
    one.len() < other.len()
}

/// Returns the indices of names, in the order of the names. The compiler runs it: names that do not fit fail
/// the build.
pub(crate) const fn sorted<const COUNT: usize>(names: &[&str; COUNT]) -> [u16; COUNT] {
    assert!(COUNT <= u16::MAX as usize, "more calls than numbers");
    let mut order = [0; COUNT];
    let mut count = 0;
    while count < COUNT {
        // A binary search for the first name in order that is not before it.
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            if is_before(names[order[middle] as usize], names[count]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut at = count;
        while at > low {
            order[at] = order[at - 1];
            at -= 1;
        }
        order[low] = count as u16;
        count += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_bytes() {
        assert_eq!(sorted(&["b", "ab", "a", "", "a_b"]), [3, 2, 4, 1, 0]);
    }
}
