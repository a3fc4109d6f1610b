//! The machinery under the model: one table per object yields the struct, its (de)serialisation, its shape for the
//! checked reader, and its merge.
//!
//! What it is not: any object of Ignition itself (see `model` and `v2`).

use std::borrow::Cow;
use std::collections::HashMap;

/// The type of a JSON value, so that mistakes are found with their path before serde sees them.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A string.
    Str,
    /// A whole number.
    Int,
    /// `true` or `false`.
    Bool,
    /// A list whose elements have one shape.
    List(&'static Shape),
    /// An object with known fields.
    Object(&'static [Field]),
}

/// One known field of an object.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its JSON name.
    pub(crate) name: &'static str,
    /// The minor version of spec 3 that introduced it.
    pub(crate) since: u8,
    /// Its shape.
    pub(crate) shape: &'static Shape,
}

/// Types that know their shape.
pub(crate) trait Shaped {
    /// The shape.
    const SHAPE: &'static Shape;
}
impl Shaped for String {
    const SHAPE: &'static Shape = &Shape::Str;
}
impl Shaped for i64 {
    const SHAPE: &'static Shape = &Shape::Int;
}
impl Shaped for bool {
    const SHAPE: &'static Shape = &Shape::Bool;
}
impl<T: Shaped> Shaped for Option<T> {
    const SHAPE: &'static Shape = T::SHAPE;
}
impl<T: Shaped> Shaped for Vec<T> {
    const SHAPE: &'static Shape = &Shape::List(T::SHAPE);
}

/// Types that can be absent and are then not written. A required string is always written.
pub(crate) trait Absent {
    /// Whether there is nothing to write.
    fn absent(&self) -> bool;
}
impl Absent for String {
    fn absent(&self) -> bool {
        false
    }
}
impl Absent for i64 {
    fn absent(&self) -> bool {
        *self == 0
    }
}
impl Absent for bool {
    fn absent(&self) -> bool {
        !*self
    }
}
impl<T> Absent for Option<T> {
    fn absent(&self) -> bool {
        self.is_none()
    }
}
impl<T> Absent for Vec<T> {
    fn absent(&self) -> bool {
        self.is_empty()
    }
}

/// Types that can be merged.
pub(crate) trait Merge: Sized {
    /// The child merged over the parent.
    fn merge(self, child: Self) -> Self;
}
impl Merge for String {
    fn merge(self, child: Self) -> Self {
        child
    }
}
impl Merge for i64 {
    fn merge(self, child: Self) -> Self {
        if child == 0 { self } else { child }
    }
}
impl<T: Scalar> Merge for Option<T> {
    fn merge(self, child: Self) -> Self {
        child.or(self)
    }
}
impl<T: Keyed + Merge + Default> Merge for Vec<T> {
    fn merge(self, child: Self) -> Self {
        keyed(self, child)
    }
}

/// Marks types that are replaced as a whole.
pub(crate) trait Scalar {}
impl Scalar for String {}
impl Scalar for i64 {}
impl Scalar for bool {}

/// Elements of a list that are identified by a key.
pub(crate) trait Keyed {
    /// The key.
    fn key(&self) -> Cow<'_, str>;
}
impl Keyed for String {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

/// Up to this many elements of a child list are looked up in the parent one by one. MachineConfigs mostly hold one
/// file, and otherwise a table of the parent's five hundred files would be built for each.
const FEW: usize = 8;

/// Merges two keyed lists: the parent's order, with the child's new elements after it in the child's order.
fn keyed<T: Keyed + Merge + Default>(mut parent: Vec<T>, child: Vec<T>) -> Vec<T> {
    if child.is_empty() {
        return parent;
    }
    if parent.is_empty() {
        return child;
    }
    let places = if child.len() <= FEW { search(&parent, &child) } else { look_up(&parent, &child) };
    let mut new = Vec::new();
    for (c, place) in child.into_iter().zip(places) {
        match place.and_then(|i| parent.get_mut(i)) {
            Some(p) => *p = std::mem::take(p).merge(c),
            None => new.push(c),
        }
    }
    parent.extend(new);
    parent
}

/// For each element of the child, the element of the parent that it overrides. If several share a key, which no valid
/// list has, the child's last one overrides the parent's first.
fn search<T: Keyed>(parent: &[T], child: &[T]) -> Vec<Option<usize>> {
    let mut later = child;
    let mut place = |c: &T| {
        later = later.get(1..).unwrap_or_default();
        let key = c.key();
        if later.iter().any(|l| l.key() == key) { None } else { parent.iter().position(|p| p.key() == key) }
    };
    child.iter().map(&mut place).collect()
}

/// Like [`search`], but with a table.
fn look_up<T: Keyed>(parent: &[T], child: &[T]) -> Vec<Option<usize>> {
    let index: HashMap<Cow<'_, str>, usize> = child.iter().enumerate().map(|(i, c)| (c.key(), i)).collect();
    let mut places = vec![None; child.len()];
    for (i, p) in parent.iter().enumerate() {
        if let Some(place @ None) = index.get(p.key().as_ref()).and_then(|j| places.get_mut(*j)) {
            *place = Some(i);
        }
    }
    places
}

/// Merges one field: by its type, or appended if the table says so.
macro_rules! merge_field {
    ($parent:expr, $child:expr, append) => {{
        let mut all = $parent;
        all.extend($child);
        all
    }};
    ($parent:expr, $child:expr,) => {
        $crate::object::Merge::merge($parent, $child)
    };
}

/// Declares an object without a merge from its table: field, type, JSON name, and the minor version of spec 3 that
/// introduced it.
macro_rules! data {
    ($(#[$doc:meta])* $vis:vis $name:ident {
        $( $(#[$fdoc:meta])* $field:ident: $ty:ty = $json:literal, $since:literal; )*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        $vis struct $name {
            $(
                $(#[$fdoc])*
                #[serde(rename = $json, default, skip_serializing_if = "crate::object::Absent::absent")]
                $vis $field: $ty,
            )*
        }
        impl $crate::object::Shaped for $name {
            const SHAPE: &'static $crate::object::Shape = &$crate::object::Shape::Object(&[
                $( $crate::object::Field {
                    name: $json,
                    since: $since,
                    shape: <$ty as $crate::object::Shaped>::SHAPE,
                }, )*
            ]);
        }
        impl $crate::object::Absent for $name {
            fn absent(&self) -> bool {
                true $( && $crate::object::Absent::absent(&self.$field) )*
            }
        }
    };
}

/// Declares an object with its merge. A field whose row ends in `append` is a list that a child only adds to.
macro_rules! object {
    ($(#[$doc:meta])* $vis:vis $name:ident {
        $( $(#[$fdoc:meta])* $field:ident: $ty:ty = $json:literal, $since:literal $(, $mode:ident)?; )*
    }) => {
        $crate::object::data!(
            $(#[$doc])* $vis $name { $( $(#[$fdoc])* $field: $ty = $json, $since; )* }
        );
        impl $crate::object::Merge for $name {
            fn merge(self, child: Self) -> Self {
                if $crate::object::Absent::absent(&child) {
                    return self;
                }
                if $crate::object::Absent::absent(&self) {
                    return child;
                }
                Self {
                    $( $field: $crate::object::merge_field!(self.$field, child.$field, $($mode)?), )*
                }
            }
        }
    };
}

pub(crate) use {data, merge_field, object};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searching_and_looking_up_find_the_same_places() {
        let list = |keys: &str| keys.chars().map(String::from).collect::<Vec<String>>();
        for (parent, child) in
            [("", "a"), ("ab", ""), ("abc", "xca"), ("aba", "aa"), ("abc", "bxb"), ("zyx", "xyzxyz")]
        {
            let (parent, child) = (list(parent), list(child));
            assert_eq!(search(&parent, &child), look_up(&parent, &child), "{parent:?} {child:?}");
        }
        assert_eq!(search(&list("aba"), &list("aab")), [None, Some(0), Some(1)]);
    }
}
