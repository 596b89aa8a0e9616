//! Names that a branch may assign, found by syntax: targets of assignments, and arguments of
//! calls that are passed as `&mut`, or by the name of a reference.

use proc_macro2::Ident;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprAssign, ExprBinary, ExprCall, ExprReference, ExprUnary, UnOp};

/// Returns the variable of a place expression: that of `x`, `x.field` or `*x`.
pub(crate) fn root(place: &Expr) -> Option<&Ident> {
    match place {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Field(field) => root(&field.base),
        Expr::Paren(inner) => root(&inner.expr),
        Expr::Group(inner) => root(&inner.expr),
        Expr::Unary(ExprUnary { op: UnOp::Deref(_), expr, .. }) => root(expr),
        _ => None,
    }
}

/// The names, in the order of their first assignment.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<Ident>,
}

impl Names {
    /// Adds the names that a block assigns.
    pub(crate) fn block(&mut self, block: &Block) {
        self.visit_block(block);
    }

    /// Adds the names that an expression assigns.
    pub(crate) fn expression(&mut self, expression: &Expr) {
        self.visit_expr(expression);
    }

    /// Returns the names.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Ident> {
        self.names.into_iter()
    }

    fn add(&mut self, place: &Expr) {
        if let Some(name) = root(place)
            && !self.names.contains(name)
        {
            self.names.push(name.clone());
        }
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_expr_assign(&mut self, assign: &'a ExprAssign) {
        self.add(&assign.left);
        visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_binary(&mut self, binary: &'a ExprBinary) {
        if matches!(binary.op, BinOp::AddAssign(_) | BinOp::SubAssign(_)) {
            self.add(&binary.left);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        call.args.iter().for_each(|argument| self.add(argument));
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_reference(&mut self, reference: &'a ExprReference) {
        if reference.mutability.is_some() {
            self.add(&reference.expr);
        }
        visit::visit_expr_reference(self, reference);
    }
}
