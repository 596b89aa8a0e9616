//! What only some queue pairs have, behind one pointer, which is empty in all others.
//!
//! Falcon's flows are labelled by its own layers, which ask no path policy of the queue pair's, and it has no credits.

use rnic_base::near_whole;
use rnic_policy::PolicyState;

use crate::falcon::FalconQp;
use crate::qp::credits::Credits;

/// State of a queue pair that most have not: a path policy's, what is known of receives at the other end, or Falcon's
/// part.
#[derive(Debug, Default)]
pub(crate) struct Extra(Option<Box<Kind>>);

#[derive(Debug)]
enum Kind {
    /// What the path policy remembers; boxed, since it is larger than Falcon's part, which idle connections have.
    Path(Box<PolicyState>),
    /// Receives at the other end; and the same, where there is such a policy too.
    Credits(Credits, Option<Box<PolicyState>>),
    /// Falcon's part.
    Falcon(FalconQp),
}

impl Extra {
    /// The state of a path policy.
    pub(crate) fn new_path(state: PolicyState) -> Self {
        Self(Some(Box::new(Kind::Path(Box::new(state)))))
    }

    /// Falcon's part, of a queue pair that nobody has connected.
    pub(crate) fn new_falcon() -> Self {
        Self(Some(Box::new(Kind::Falcon(FalconQp::new()))))
    }

    /// What the path policy remembers, when it keeps state.
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

    /// Prefetches it, without asking of which kind it is: reading that would wait for the memory.
    #[inline]
    pub(crate) fn touch(&self) {
        if let Some(kind) = self.0.as_deref() {
            near_whole(kind);
        }
    }

    /// Falcon's part, when the queue pair is Falcon's.
    #[inline]
    pub(crate) fn falcon(&self) -> Option<&FalconQp> {
        match self.0.as_deref() {
            Some(Kind::Falcon(falcon)) => Some(falcon),
            _ => None,
        }
    }

    /// As [`Extra::falcon`].
    #[inline]
    pub(crate) fn falcon_mut(&mut self) -> Option<&mut FalconQp> {
        match self.0.as_deref_mut() {
            Some(Kind::Falcon(falcon)) => Some(falcon),
            _ => None,
        }
    }

    /// Whether there is nothing.
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }
}
