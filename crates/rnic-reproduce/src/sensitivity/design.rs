//! Which settings of open parameters are run.

use rnic_base::RandomStreams;
use serde::Serialize;

/// Choice of settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// One parameter at a time at each of its values, the others at the plan's.
    Each,
    /// Morris' screening (Technometrics, 1991): random trajectories through the settings, on which every parameter
    /// changes once, so that it changes with different values of the others.
    Morris,
}

/// For each open parameter the index of its value, or `None` for the plan's.
pub(super) type Setting = Vec<Option<usize>>;

/// Two settings that differ in one parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Step {
    pub(super) parameter: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The settings; the first has the plan's values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) settings: Vec<Setting>,
    pub(super) steps: Vec<Step>,
}

impl Plan {
    /// Returns the settings of parameters with `counts` other values than the plan's.
    pub(super) fn new(design: Design, counts: &[usize]) -> Self {
        let mut plan = Self { settings: vec![vec![None; counts.len()]], steps: Vec::new() };
        match design {
            Design::Each => plan.add_each(counts),
            Design::Morris => plan.add_trajectories(counts),
        }
        plan
    }

    fn add_each(&mut self, counts: &[usize]) {
        for (parameter, count) in counts.iter().enumerate() {
            for value in 0..*count {
                self.step(0, parameter, Some(value));
            }
        }
    }

    /// Libraries for this method expect intervals of numbers. Here the values are those that the file lists, of which
    /// some set several keys, and a step goes from one to any other.
    fn add_trajectories(&mut self, counts: &[usize]) {
        let mut random = RandomStreams::new(SEED).stream("morris");
        for _ in 0..TRAJECTORIES {
            let start = counts.iter().map(|count| value(random.below(*count as u64 + 1))).collect();
            let mut at = self.add(start);
            let mut order: Vec<usize> = (0..counts.len()).collect();
            random.shuffle(&mut order);
            for parameter in order {
                let others = counts[parameter] as u64;
                let now = self.settings[at][parameter].map_or(0, |index| index as u64 + 1);
                let next = (now + 1 + random.below(others)) % (others + 1);
                at = self.step(at, parameter, value(next));
            }
        }
    }

    /// Adds the setting `from` with another value of `parameter`; returns its index.
    fn step(&mut self, from: usize, parameter: usize, value: Option<usize>) -> usize {
        let mut setting = self.settings[from].clone();
        setting[parameter] = value;
        let to = self.add(setting);
        self.steps.push(Step { parameter, from, to });
        to
    }

    /// Adds a setting unless it is there; returns its index.
    fn add(&mut self, setting: Setting) -> usize {
        if let Some(index) = self.settings.iter().position(|other| *other == setting) {
            return index;
        }
        self.settings.push(setting);
        self.settings.len() - 1
    }
}

/// Returns the value with a number: 0 is the plan's.
fn value(number: u64) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}

/// Number of trajectories: a customary number for a screening.
const TRAJECTORIES: usize = 10;
/// Seed of the trajectories.
const SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_a_setting_for_each_value() {
        let plan = Plan::new(Design::Each, &[2, 1]);
        let settings = [[None, None], [Some(0), None], [Some(1), None], [None, Some(0)]];
        assert_eq!(plan.settings, settings.map(|setting| setting.to_vec()));
        let parameters: Vec<usize> = plan.steps.iter().map(|step| step.parameter).collect();
        assert_eq!(parameters, [0, 0, 1]);
        assert!(plan.steps.iter().all(|step| step.from == 0));
    }

    #[test]
    fn every_parameter_changes_once_on_a_trajectory_and_nothing_else() {
        let counts = [3, 1, 2, 4];
        let plan = Plan::new(Design::Morris, &counts);
        assert_eq!(plan.steps.len(), TRAJECTORIES * counts.len());
        for trajectory in plan.steps.chunks(counts.len()) {
            let mut changed: Vec<usize> = trajectory.iter().map(|step| step.parameter).collect();
            changed.sort_unstable();
            assert_eq!(changed, [0, 1, 2, 3]);
            assert!(trajectory.windows(2).all(|pair| pair[0].to == pair[1].from));
        }
        for step in &plan.steps {
            let (from, to) = (&plan.settings[step.from], &plan.settings[step.to]);
            let differing: Vec<usize> = (0..counts.len()).filter(|index| from[*index] != to[*index]).collect();
            assert_eq!(differing, [step.parameter]);
            assert!(to.iter().zip(counts).all(|(value, count)| value.is_none_or(|value| value < count)));
        }
        let values = plan.settings.iter().map(|setting| setting[3]);
        assert_eq!(values.collect::<std::collections::BTreeSet<_>>().len(), 5, "a value is never taken");
        assert_eq!(plan, Plan::new(Design::Morris, &counts), "the same settings again");
    }
}
