//! Jain's index: the fairness of a division.

/// Returns Jain's index of `shares`: (sum x)^2 / (n sum x^2), which is 1 when all are equal, and 1/n when one of n has
/// everything (Jain, Chiu and Hawe, DEC-TR-301, 1984). 1 for no shares, and 0 when all are zero. For reports only.
pub fn jain_f64(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    if count == 0.0 {
        1.0
    } else if squares > 0.0 {
        sum * sum / (count * squares)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_1_for_equal_shares_and_1_of_n_for_one_winner() {
        let of = |shares: &[f64]| jain_f64(shares.iter().copied());
        assert_eq!((of(&[7.0, 7.0, 7.0]), of(&[5.0, 0.0, 0.0, 0.0]), of(&[3.0])), (1.0, 0.25, 1.0));
        // (1 + 3)^2 / (2 (1 + 9))
        assert_eq!((of(&[1.0, 3.0]), of(&[]), of(&[0.0, 0.0])), (0.8, 1.0, 0.0));
    }
}
