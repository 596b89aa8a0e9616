//! Weighted max-min shares of a capacity.
//!
//! Source: Bertsekas and Gallager, "Data Networks", section 6.5.2 (max-min fair flow control), with weights.

/// Claim on a share of the capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// Weight, at least 1.
    pub(crate) weight: u32,
    /// Maximum rate that the claimant uses, in bit/s; `None` if it uses any rate that it is allotted.
    pub(crate) demand: Option<u64>,
}

/// Returns the share of each claim, in bit/s and in the order of `claims`: no claimant receives more than its demand,
/// and the rest is divided in proportion to the weights among those that want more. The shares add up to `capacity`
/// exactly if the demands do so or exceed it, and to the sum of the demands otherwise.
pub(crate) fn max_min(capacity: u64, claims: &[Claim]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    // Those that want least in proportion to their weight are satisfied first; ties keep their order.
    order.sort_by(|a, b| {
        let (a, b) = (&claims[*a], &claims[*b]);
        match (a.demand, b.demand) {
            (Some(x), Some(y)) => (u128::from(x) * u128::from(b.weight)).cmp(&(u128::from(y) * u128::from(a.weight))),
            (x, y) => x.is_none().cmp(&y.is_none()),
        }
    });
    let mut weights: u64 = claims.iter().map(|claim| u64::from(claim.weight)).sum();
    let (mut left, mut shares) = (capacity, vec![0; claims.len()]);
    for index in order {
        let Claim { weight, demand } = claims[index];
        let fair = u128::from(left) * u128::from(weight) / u128::from(weights.max(1));
        // Not above `left`, because the weight is one of the addends of `weights`.
        let fair = u64::try_from(fair).unwrap_or(left);
        shares[index] = demand.map_or(fair, |demand| demand.min(fair));
        left -= shares[index];
        weights -= u64::from(weight);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_base::{RandomStream, RandomStreams};

    fn claim(weight: u32, demand: Option<u64>) -> Claim {
        Claim { weight, demand }
    }

    #[test]
    fn shares_follow_weights_and_unused_capacity_goes_to_those_that_want_more() {
        assert!(max_min(900, &[]).is_empty());
        assert_eq!(max_min(900, &[claim(1, None)]), [900]);
        assert_eq!(max_min(900, &[claim(1, None), claim(2, None)]), [300, 600]);
        assert_eq!(max_min(900, &[claim(1, None), claim(1, Some(100)), claim(1, None)]), [400, 100, 400]);
        // The second wants more than an equal share, but less than its weighted share.
        assert_eq!(max_min(900, &[claim(1, None), claim(3, Some(600))]), [300, 600]);
        assert_eq!(max_min(900, &[claim(1, Some(10)), claim(1, Some(20))]), [10, 20]);
        assert_eq!(max_min(100, &[claim(1, None); 3]).iter().sum::<u64>(), 100, "rounding loses nothing");
    }

    fn draw(random: &mut RandomStream) -> (u64, Vec<Claim>) {
        let count = random.between(1, 12);
        let capacity = random.between(0, 10_000_000_000);
        let one = |random: &mut RandomStream| {
            let weight = random.between(1, 1_000) as u32;
            let demand = (random.between(0, 2) > 0).then(|| random.between(0, capacity + 1));
            claim(weight, demand)
        };
        (capacity, (0..count).map(|_| one(random)).collect())
    }

    #[test]
    fn shares_are_work_conserving_weighted_and_never_above_capacity_or_demand() {
        let mut random = RandomStreams::new(1).stream("max-min");
        for _ in 0..20_000 {
            let (capacity, claims) = draw(&mut random);
            let shares = max_min(capacity, &claims);
            let demands = claims.iter().map(|claim| claim.demand.map_or(u128::MAX / 100, u128::from)).sum::<u128>();
            let given: u128 = shares.iter().copied().map(u128::from).sum();
            assert_eq!(given, demands.min(capacity.into()), "{claims:?}: {shares:?} of {capacity}");
            for (claim, share) in claims.iter().zip(&shares) {
                assert!(claim.demand.is_none_or(|demand| *share <= demand), "{claims:?}: {shares:?}");
            }
            // A claimant that gets less than it wants has, by weight, at least as much as everyone else; each division
            // rounds by less than one unit.
            for (claim, share) in claims.iter().zip(&shares) {
                if claim.demand.is_none_or(|demand| *share < demand) {
                    for (other, theirs) in claims.iter().zip(&shares) {
                        let own = (u128::from(*share) + claims.len() as u128 + 1) * u128::from(other.weight);
                        let most = u128::from(theirs.saturating_sub(claims.len() as u64)) * u128::from(claim.weight);
                        assert!(own >= most, "{claims:?}: {shares:?} of {capacity}");
                    }
                }
            }
        }
    }

    #[test]
    fn more_capacity_demand_or_weight_never_lowers_the_own_share() {
        let mut random = RandomStreams::new(2).stream("max-min");
        for _ in 0..20_000 {
            let (capacity, claims) = draw(&mut random);
            let shares = max_min(capacity, &claims);
            let slack = claims.len() as u64;
            let more = max_min(capacity + 1_000_000, &claims);
            assert!(shares.iter().zip(&more).all(|(before, after)| *after + slack >= *before), "{claims:?}");
            let index = random.below(claims.len() as u64) as usize;
            let mut raised = claims.clone();
            raised[index].demand = raised[index].demand.map(|demand| demand * 2);
            raised[index].weight = (raised[index].weight * 2).min(1_000);
            assert!(max_min(capacity, &raised)[index] + slack >= shares[index], "{claims:?} with {raised:?}");
            let fewer = max_min(capacity, &claims[1..]);
            assert!(fewer.iter().zip(&shares[1..]).all(|(alone, shared)| *alone + slack >= *shared), "{claims:?}");
        }
    }
}
