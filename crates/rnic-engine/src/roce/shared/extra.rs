//! State that only some connections have, behind one pointer, which is empty in all others.

use rnic_policy::PolicyState;

use super::credits::Credits;

/// State of a connection that most have not: a path policy's, and what is known of receives at the other end.
#[derive(Debug, Default)]
pub(crate) struct Extra(Option<Box<Kind>>);

#[derive(Debug)]
enum Kind {
    /// The state of the path policy.
    Path(Box<PolicyState>),
    /// Receives at the other end; and the same, where there is such a policy too.
    Credits(Credits, Option<Box<PolicyState>>),
}

impl Extra {
    /// The state of a path policy.
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

    /// Begins to count receives at the other end.
    pub(crate) fn add_credits(&mut self) {
        let path = match self.0.take().map(|kind| *kind) {
            Some(Kind::Path(state)) => Some(state),
            _ => None,
        };
        self.0 = Some(Box::new(Kind::Credits(Credits::default(), path)));
    }

    /// Receives at the other end, where the transport keeps to them.
    pub(crate) fn credits(&self) -> Option<&Credits> {
        match self.0.as_deref() {
            Some(Kind::Credits(credits, _)) => Some(credits),
            _ => None,
        }
    }

    /// As [`Extra::credits`].
    pub(crate) fn credits_mut(&mut self) -> Option<&mut Credits> {
        match self.0.as_deref_mut() {
            Some(Kind::Credits(credits, _)) => Some(credits),
            _ => None,
        }
    }

    /// Whether there is nothing.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }
}
