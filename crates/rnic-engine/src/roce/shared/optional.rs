//! State that only some connections have, behind one pointer that is null for all others.

use rnic_policy::PolicyState;

use super::credits::Credits;

/// Optional state that most connections do not have: the state of a path policy, and the known number of receives at
/// the other end.
#[derive(Debug, Default)]
pub(crate) struct OptionalState(Option<Box<OptionalStateContent>>);

#[derive(Debug)]
enum OptionalStateContent {
    /// The state of the path policy.
    Path(Box<PathState>),
    /// Number of receives at the other end, and the state of the path policy if the connection has one.
    Credits(Credits, Option<Box<PathState>>),
}

/// State of a path policy.
#[derive(Debug)]
pub(crate) struct PathState {
    pub(super) state: PolicyState,
    /// True while the policy holds new packets until those in flight are acknowledged.
    pub(super) is_draining: bool,
}

impl OptionalState {
    /// Creates the state of a path policy.
    pub(crate) fn new_path(state: PolicyState) -> Self {
        Self(Some(Box::new(OptionalStateContent::Path(Box::new(PathState { state, is_draining: false })))))
    }

    /// Returns the state of the path policy, if the policy has state.
    #[inline]
    pub(crate) fn path_mut(&mut self) -> Option<&mut PathState> {
        match self.0.as_deref_mut() {
            Some(OptionalStateContent::Path(state) | OptionalStateContent::Credits(_, Some(state))) => Some(state),
            _ => None,
        }
    }

    /// Starts counting the receives posted at the other end.
    pub(crate) fn add_credits(&mut self) {
        let path = match self.0.take().map(|state| *state) {
            Some(OptionalStateContent::Path(state)) => Some(state),
            _ => None,
        };
        self.0 = Some(Box::new(OptionalStateContent::Credits(Credits::default(), path)));
    }

    /// Returns the known number of receives at the other end, for transports that limit messages by it.
    pub(crate) fn credits(&self) -> Option<&Credits> {
        match self.0.as_deref() {
            Some(OptionalStateContent::Credits(credits, _)) => Some(credits),
            _ => None,
        }
    }

    /// Returns the same as [`OptionalState::credits`], with mutable access.
    pub(crate) fn credits_mut(&mut self) -> Option<&mut Credits> {
        match self.0.as_deref_mut() {
            Some(OptionalStateContent::Credits(credits, _)) => Some(credits),
            _ => None,
        }
    }

    /// Returns whether there is no optional state.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }
}
