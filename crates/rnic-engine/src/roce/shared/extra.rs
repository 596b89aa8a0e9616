//! State that only some connections have, behind one pointer, which is empty in all others.

use rnic_policy::PolicyState;

use super::credits::Credits;

/// Optional state that most connections do not have: that of a path policy, and the known receives at the other end.
#[derive(Debug, Default)]
pub(crate) struct Extra(Option<Box<Kind>>);

#[derive(Debug)]
enum Kind {
    /// The state of the path policy.
    Path(Box<PolicyState>),
    /// The receives at the other end, and the state of the path policy, if there is one too.
    Credits(Credits, Option<Box<PolicyState>>),
}

impl Extra {
    /// Creates the state of a path policy.
    pub(crate) fn new_path(state: PolicyState) -> Self {
        Self(Some(Box::new(Kind::Path(Box::new(state)))))
    }

    /// Returns the state of the path policy, if it keeps any.
    #[inline]
    pub(crate) fn path_mut(&mut self) -> Option<&mut PolicyState> {
        match self.0.as_deref_mut() {
            Some(Kind::Path(state) | Kind::Credits(_, Some(state))) => Some(state),
            _ => None,
        }
    }

    /// Starts counting receives at the other end.
    pub(crate) fn add_credits(&mut self) {
        let path = match self.0.take().map(|kind| *kind) {
            Some(Kind::Path(state)) => Some(state),
            _ => None,
        };
        self.0 = Some(Box::new(Kind::Credits(Credits::default(), path)));
    }

    /// Returns the receives at the other end, where the transport limits messages to them.
    pub(crate) fn credits(&self) -> Option<&Credits> {
        match self.0.as_deref() {
            Some(Kind::Credits(credits, _)) => Some(credits),
            _ => None,
        }
    }

    /// Returns the same as [`Extra::credits`], with mutable access.
    pub(crate) fn credits_mut(&mut self) -> Option<&mut Credits> {
        match self.0.as_deref_mut() {
            Some(Kind::Credits(credits, _)) => Some(credits),
            _ => None,
        }
    }

    /// Returns whether there is no optional state.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }
}
