//! Assignment of the hardware transport's flow ids to connections, first come, first served.

/// Place at which a connection's data is sent: in hardware or in software.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the hardware transport (Tonic), as the flow with this id.
    Template(u16),
    /// In software: all ids were taken.
    Software,
}

/// Error: a place is released that is not in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is released, but no connection has it")]
pub struct NotAssigned(pub Place);

/// Allocation of the flow ids of a hardware template to connections, and counters of the connections that have none.
#[derive(Clone, Debug)]
pub struct Flows {
    is_taken: Vec<bool>,
    /// Ids that no connection has; the last one is given out next.
    free: Vec<u16>,
    in_software: u64,
    software_total: u64,
}

impl Flows {
    /// Returns the ids from zero to `flows - 1`.
    pub fn new(flows: u16) -> Self {
        Self {
            is_taken: vec![false; usize::from(flows)],
            free: (0..flows).rev().collect(),
            in_software: 0,
            software_total: 0,
        }
    }

    /// Assigns a place to a new connection. A connection keeps its place, also when an id becomes free.
    pub fn assign(&mut self) -> Place {
        let Some(id) = self.free.pop() else { return self.assign_software() };
        self.is_taken[usize::from(id)] = true;
        Place::Template(id)
    }

    /// Places a new connection in software, for example because the other end has no id left for it.
    pub fn assign_software(&mut self) -> Place {
        self.in_software += 1;
        self.software_total += 1;
        Place::Software
    }

    /// Frees the place of a connection that has ended.
    ///
    /// # Errors
    /// When no connection has this place; nothing has changed then.
    pub fn release(&mut self, place: Place) -> Result<(), NotAssigned> {
        match place {
            Place::Software => {
                self.in_software = self.in_software.checked_sub(1).ok_or(NotAssigned(place))?;
            }
            Place::Template(id) => {
                let is_taken = self.is_taken.get_mut(usize::from(id)).filter(|is_taken| **is_taken);
                *is_taken.ok_or(NotAssigned(place))? = false;
                self.free.push(id);
            }
        }
        Ok(())
    }

    /// Returns the number of connections in the template.
    pub fn in_template(&self) -> usize {
        self.is_taken.len() - self.free.len()
    }

    /// Returns the number of connections in software.
    pub fn in_software(&self) -> u64 {
        self.in_software
    }

    /// Returns the number of connections that have ever been placed in software.
    pub fn software_total(&self) -> u64 {
        self.software_total
    }
}
