//! A table whose places are used again.

#[derive(Debug)]
pub(super) struct Slots<T> {
    places: Vec<(u16, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Returns the place and its turn.
    pub(super) fn add(&mut self, value: T) -> (u32, u16) {
        if let Some(at) = self.free.pop()
            && let Some((turn, place)) = self.places.get_mut(at as usize)
        {
            *turn = turn.wrapping_add(1);
            *place = Some(value);
            return (at, *turn);
        }
        self.places.push((0, Some(value)));
        (u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX), 0)
    }

    pub(super) fn get(&mut self, at: u32, turn: u16) -> Option<&mut T> {
        match self.places.get_mut(at as usize) {
            Some((now, Some(value))) if *now == turn => Some(value),
            _ => None,
        }
    }

    pub(super) fn take(&mut self, at: u32, turn: u16) -> Option<T> {
        let (now, place) = self.places.get_mut(at as usize)?;
        let value = if *now == turn { place.take() } else { None };
        if value.is_some() {
            self.free.push(at);
        }
        value
    }

    /// Takes the value out for a while. Its place stays in use.
    pub(super) fn lift(&mut self, at: u32, turn: u16) -> Option<T> {
        let (now, place) = self.places.get_mut(at as usize)?;
        if *now == turn { place.take() } else { None }
    }

    /// Puts a lifted value back, or frees its place.
    pub(super) fn settle(&mut self, at: u32, value: Option<T>) {
        let Some((_, place)) = self.places.get_mut(at as usize) else { return };
        match value {
            Some(value) => *place = Some(value),
            None => self.free.push(at),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The places in use.
    pub(super) fn all(&self) -> Vec<(u32, u16)> {
        let used = self.places.iter().enumerate().filter(|(_, (_, value))| value.is_some());
        used.map(|(at, (turn, _))| (u32::try_from(at).unwrap_or(u32::MAX), *turn)).collect()
    }
}
