//! Rewrites a function, purely by syntax, into the one that builds its graph.
//!
//! `a + b` becomes `g.add(a, b)`, a method `x.f(y)` becomes `g.f(x, y)`, and `if` becomes two recordings and a join of
//! the variables that either branch assigns.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    BinOp, Block, Error, Expr, ExprAssign, ExprBinary, ExprCall, ExprIf, ExprLit, ExprMethodCall, ExprUnary, FnArg,
    Item, ItemFn, Lit, Local, Member, Pat, ReturnType, Stmt, Type, UnOp,
};

use crate::assigned;

type Result<T> = core::result::Result<T, Error>;

/// Methods of numbers and maps; the recorder has methods of the same names.
const METHODS: [&str; 11] = [
    "after",
    "at_least",
    "at_most",
    "min",
    "max",
    "saturating_add",
    "saturating_sub",
    "test",
    "first_zero",
    "first_one",
    "count",
];

/// A variable that may be assigned: its name, and whether it is a reference.
#[derive(Clone)]
struct Variable {
    name: Ident,
    is_reference: bool,
}

impl Variable {
    /// Returns the place that is read and written.
    fn place(&self) -> TokenStream {
        let name = &self.name;
        if self.is_reference { quote!((*#name)) } else { quote!(#name) }
    }
}

struct Rewriter {
    /// The recorder's name.
    g: Ident,
    /// Other functions that are called.
    callees: BTreeSet<Ident>,
    variables: Vec<Variable>,
}

/// Returns the module that records `function`.
pub(crate) fn function(function: &ItemFn, lines: u32) -> Result<TokenStream> {
    let signature = &function.sig;
    let refuse = |what: &dyn quote::ToTokens, why| Err(Error::new_spanned(what, why));
    if let Some(generic) = signature.generics.params.first() {
        return refuse(generic, "a circuit has fixed widths: a program is not generic");
    }
    if let Some(word) = signature.asyncness.as_ref() {
        return refuse(word, "a circuit ends within a cycle: a program is not async");
    }
    let mut rewriter =
        Rewriter { g: Ident::new("__g", Span::mixed_site()), callees: BTreeSet::new(), variables: Vec::new() };
    let mut parameters = TokenStream::new();
    for argument in &signature.inputs {
        parameters.extend(rewriter.parameter(argument)?);
    }
    let result = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, of) => rewriter.form(of)?,
    };
    let body = rewriter.block(&function.block)?;
    let callees = &rewriter.callees;
    let (g, name, visibility) = (&rewriter.g, &signature.ident, &function.vis);
    let inner = if matches!(visibility, syn::Visibility::Inherited) { quote!(pub(super)) } else { quote!(pub) };
    let text = name.to_string();
    Ok(quote! {
        #[doc(hidden)]
        #[allow(unused, clippy::all, reason = "written by a macro; the function itself is linted")]
        #visibility mod #name {
            use super::*;

            #inner const LINES: u32 = #lines #(+ #callees::LINES)*;

            #inner fn record(#g: &::rnic_program::Recorder, #parameters) -> #result {
                #g.enter(#text, ::core::file!());
                let __result: #result = #body;
                #g.leave();
                __result
            }
        }
    })
}

impl Rewriter {
    fn parameter(&mut self, argument: &FnArg) -> Result<TokenStream> {
        let FnArg::Typed(argument) = argument else {
            return Err(Error::new_spanned(argument, "a program is a function, not a method: it has no `self`"));
        };
        let Pat::Ident(pattern) = &*argument.pat else {
            return Err(Error::new_spanned(&argument.pat, "a parameter of a program is a single name"));
        };
        let name = &pattern.ident;
        let is_mutable_reference = matches!(&*argument.ty, Type::Reference(to) if to.mutability.is_some());
        if is_mutable_reference || pattern.mutability.is_some() {
            self.variables.push(Variable { name: name.clone(), is_reference: is_mutable_reference });
        }
        let mutability = &pattern.mutability;
        let form = match &*argument.ty {
            Type::Reference(to) => {
                let (form, mutability) = (self.form(&to.elem)?, &to.mutability);
                quote!(&#mutability #form)
            }
            of => self.form(of)?,
        };
        Ok(quote!(#mutability #name: #form,))
    }

    /// Returns the type that represents a value of type `of` while the function's circuit is built.
    fn form(&self, of: &Type) -> Result<TokenStream> {
        match of {
            Type::Path(_) => Ok(quote_spanned!(of.span()=> <#of as ::rnic_program::Value>::Form)),
            _ => Err(Error::new_spanned(of, "a value of a program is a number (U<N>), a flag (bool), or a bundle")),
        }
    }

    fn block(&mut self, block: &Block) -> Result<TokenStream> {
        let outer = self.variables.len();
        let statements: Result<TokenStream> = block.stmts.iter().map(|statement| self.statement(statement)).collect();
        self.variables.truncate(outer);
        let statements = statements?;
        Ok(quote!({ #statements }))
    }

    fn statement(&mut self, statement: &Stmt) -> Result<TokenStream> {
        let recorded = self.recorded(statement)?;
        if matches!(statement, Stmt::Item(_)) {
            return Ok(recorded);
        }
        let place = self.line(statement.span());
        Ok(quote!(#place #recorded))
    }

    /// Returns the statement that tells the recorder the line of what follows.
    fn line(&self, span: Span) -> TokenStream {
        let (g, line) = (&self.g, span.start().line as u32);
        quote!(#g.line(#line);)
    }

    fn recorded(&mut self, statement: &Stmt) -> Result<TokenStream> {
        match statement {
            Stmt::Local(local) => self.local(local),
            Stmt::Expr(expression, None) => self.expression(expression),
            Stmt::Expr(expression, Some(_)) => {
                let recorded = self.expression(expression)?;
                Ok(quote!(#recorded;))
            }
            Stmt::Item(item @ Item::Const(_)) => Ok(quote!(#item)),
            Stmt::Item(item) => Err(Error::new_spanned(item, "a program declares nothing but constants")),
            Stmt::Macro(call) => Err(Error::new_spanned(call, "macros cannot become gates")),
        }
    }

    fn local(&mut self, local: &Local) -> Result<TokenStream> {
        let (pattern, of) = match &local.pat {
            Pat::Type(typed) => (&*typed.pat, Some(self.form(&typed.ty)?)),
            pattern => (pattern, None),
        };
        let Pat::Ident(pattern) = pattern else {
            return Err(Error::new_spanned(pattern, "`let` of a program declares one name"));
        };
        let Some(init) = &local.init else {
            return Err(Error::new_spanned(local, "a wire always has a value: give the variable one"));
        };
        if let Some((_, diverge)) = &init.diverge {
            return Err(Error::new_spanned(diverge, "a program has no early exit: use `if` and `else`"));
        }
        if let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = &*init.expr {
            return Err(Error::new_spanned(number, "the number has no width yet: write u(...)"));
        }
        let value = self.expression(&init.expr)?;
        let (name, mutability) = (&pattern.ident, &pattern.mutability);
        if mutability.is_some() {
            self.variables.push(Variable { name: name.clone(), is_reference: false });
        }
        let of = of.map(|of| quote!(: #of));
        let (g, label) = (&self.g, name.to_string());
        Ok(quote!(let #mutability #name #of = #g.label(#label, #value);))
    }

    fn expression(&mut self, expression: &Expr) -> Result<TokenStream> {
        let g = self.g.clone();
        match expression {
            Expr::Lit(literal) => self.literal(literal),
            Expr::Path(path) => Ok(quote!(#path)),
            Expr::Field(field) => {
                if !matches!(field.member, Member::Named(_)) {
                    return Err(Error::new_spanned(field, "tuples cannot become gates: use a bundle"));
                }
                let (base, member) = (self.expression(&field.base)?, &field.member);
                Ok(quote!(#base.#member))
            }
            Expr::Paren(inner) => self.expression(&inner.expr),
            Expr::Group(inner) => self.expression(&inner.expr),
            Expr::Unary(ExprUnary { op: UnOp::Not(_), expr, .. }) => {
                let value = self.expression(expr)?;
                Ok(quote_spanned!(expression.span()=> #g.not(#value)))
            }
            Expr::Unary(ExprUnary { op: UnOp::Deref(_), expr, .. }) if matches!(**expr, Expr::Path(_)) => {
                Ok(quote!((*#expr)))
            }
            Expr::Binary(binary) => self.binary(binary),
            Expr::Assign(ExprAssign { left, right, .. }) => {
                if let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = &**right {
                    return Err(Error::new_spanned(number, format!("a number has no width: write u({number})")));
                }
                let (place, value) = (self.place(left)?, self.expression(right)?);
                Ok(quote_spanned!(expression.span()=> { let __value = #value; #g.set(&mut #place, __value); }))
            }
            Expr::If(branch) => self.branch(branch),
            Expr::Block(inner) if inner.label.is_none() => self.block(&inner.block),
            Expr::Call(call) => self.call(call),
            Expr::MethodCall(call) => self.method(call),
            other => Err(Error::new_spanned(other, refusal(other))),
        }
    }

    fn literal(&self, literal: &ExprLit) -> Result<TokenStream> {
        let g = &self.g;
        match &literal.lit {
            Lit::Int(number) if number.suffix().is_empty() => {
                let number = syn::LitInt::new(&format!("{}u64", number.base10_digits()), number.span());
                Ok(quote!(#number))
            }
            Lit::Int(number) => Err(Error::new_spanned(number, "numbers have the width of their operand: no suffix")),
            Lit::Bool(flag) => Ok(quote!(#g.flag(#flag))),
            Lit::Float(number) => Err(Error::new_spanned(number, "floats cannot become gates: use fixed point")),
            other => Err(Error::new_spanned(other, "only numbers and flags can become gates")),
        }
    }

    fn place(&mut self, place: &Expr) -> Result<TokenStream> {
        match place {
            Expr::Path(_) | Expr::Field(_) | Expr::Unary(_) if assigned::root(place).is_some() => {
                self.expression(place)
            }
            other => Err(Error::new_spanned(other, "only a variable or a field of one can be assigned")),
        }
    }

    fn binary(&mut self, binary: &ExprBinary) -> Result<TokenStream> {
        let g = self.g.clone();
        let (name, is_assignment) = match binary.op {
            BinOp::Add(_) => ("add", false),
            BinOp::Sub(_) => ("sub", false),
            BinOp::Mul(_) => ("mul", false),
            BinOp::Div(_) => ("div", false),
            BinOp::And(_) | BinOp::BitAnd(_) => ("and", false),
            BinOp::Or(_) | BinOp::BitOr(_) => ("or", false),
            BinOp::BitXor(_) => ("xor", false),
            BinOp::Eq(_) => ("eq", false),
            BinOp::Ne(_) => ("ne", false),
            BinOp::Lt(_) => ("lt", false),
            BinOp::Gt(_) => ("gt", false),
            BinOp::Le(_) => ("le", false),
            BinOp::Ge(_) => ("ge", false),
            BinOp::Shl(_) | BinOp::Shr(_) => return self.shift(binary),
            BinOp::AddAssign(_) => ("add", true),
            BinOp::SubAssign(_) => ("sub", true),
            _ => {
                return Err(Error::new_spanned(
                    binary.op,
                    "this operator cannot become gates: a remainder needs a loop, and only += and -= assign",
                ));
            }
        };
        let method = Ident::new(name, binary.op.span());
        let right = self.expression(&binary.right)?;
        if is_assignment {
            let place = self.place(&binary.left)?;
            return Ok(quote_spanned! {binary.span()=>
                { let __value = #g.#method(#place, #right); #g.set(&mut #place, __value); }
            });
        }
        if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) {
            self.refuse_assignment(&binary.right)?;
        }
        let left = self.expression(&binary.left)?;
        Ok(quote_spanned!(binary.span()=> #g.#method(#left, #right)))
    }

    /// Rejects the right operand of a logical operator if it contains an assignment, because gates always evaluate it.
    fn refuse_assignment(&self, operand: &Expr) -> Result<()> {
        let mut names = assigned::Names::default();
        names.expression(operand);
        let is_variable = |name: &Ident| self.variables.iter().any(|variable| variable.name == *name);
        match names.into_iter().find(is_variable) {
            None => Ok(()),
            Some(_) => Err(Error::new_spanned(
                operand,
                "gates evaluate the right operand in any case, and this one may assign: use `if`, or a `let` before",
            )),
        }
    }

    fn shift(&mut self, binary: &ExprBinary) -> Result<TokenStream> {
        let g = self.g.clone();
        let bits = match &*binary.right {
            bits @ (Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) | Expr::Path(_)) if is_constant(bits) => bits,
            other => return Err(Error::new_spanned(other, "shifts are by constants: others need a barrel shifter")),
        };
        let method = if matches!(binary.op, BinOp::Shl(_)) { quote!(shl) } else { quote!(shr) };
        let left = self.expression(&binary.left)?;
        Ok(quote_spanned!(binary.span()=> #g.#method(#left, #bits)))
    }

    fn branch(&mut self, branch: &ExprIf) -> Result<TokenStream> {
        let g = self.g.clone();
        let (condition, place) = (self.expression(&branch.cond)?, self.line(branch.span()));
        let mut names = assigned::Names::default();
        names.block(&branch.then_branch);
        if let Some((_, other)) = &branch.else_branch {
            names.expression(other);
        }
        // The innermost variable of a name hides the others.
        let changed: Vec<Variable> = names
            .into_iter()
            .filter_map(|name| self.variables.iter().rev().find(|variable| variable.name == name).cloned())
            .collect();
        let yes = self.block(&branch.then_branch)?;
        let no = match &branch.else_branch {
            Some((_, other)) => self.expression(other)?,
            None => quote!({}),
        };
        let places: Vec<TokenStream> = changed.iter().map(Variable::place).collect();
        let taken: Vec<Ident> = (0..changed.len()).map(|at| format_ident!("__taken{}", at)).collect();
        let snapshot = nest(&places);
        let pattern = nest(&taken.iter().map(|name| quote!(#name)).collect::<Vec<_>>());
        Ok(quote_spanned! {branch.span()=> {
            #place
            let __condition = #condition;
            #g.begin_if(__condition);
            let __before = #snapshot;
            let __yes_value = #yes;
            let __yes = #snapshot;
            let #pattern = #g.flip(__condition, __before, __yes);
            #(#places = #taken;)*
            let __no_value = #no;
            let __no = #snapshot;
            let #pattern = #g.end(__condition, __yes, __no);
            #(#places = #taken;)*
            #g.select(__condition, __yes_value, __no_value)
        }})
    }

    fn call(&mut self, call: &ExprCall) -> Result<TokenStream> {
        let g = self.g.clone();
        let Expr::Path(path) = &*call.func else {
            return Err(Error::new_spanned(&call.func, "only functions can be called"));
        };
        let single = (path.path.segments.len() == 1).then(|| path.path.segments.first()).flatten();
        let width = single.map(|segment| &segment.arguments).filter(|arguments| !arguments.is_none());
        let name = single.map(|segment| &segment.ident);
        let Some(name) = name.filter(|name| width.is_none() || *name == "u") else {
            return Err(Error::new_spanned(
                path,
                "calls cannot become gates, except u(...) and other #[program] functions, by a single name",
            ));
        };
        if name == "u" {
            return match call.args.first() {
                Some(Expr::Lit(literal)) => {
                    let number = self.literal(literal)?;
                    Ok(quote_spanned!(call.span()=> #g.u #width(#number)))
                }
                Some(constant @ Expr::Path(_)) if is_constant(constant) => {
                    Ok(quote_spanned!(call.span()=> #g.u #width(#constant)))
                }
                _ => Err(Error::new_spanned(call, "u(...) is for literals and constants: use .to::<N>() for values")),
            };
        }
        let mut arguments = TokenStream::new();
        for argument in &call.args {
            let recorded = match argument {
                Expr::Reference(reference) => {
                    let (mutability, of) = (&reference.mutability, self.expression(&reference.expr)?);
                    quote!(&#mutability #of)
                }
                Expr::Block(block) => {
                    return Err(Error::new_spanned(block, "an argument is a value, a variable or a reference to one"));
                }
                other => self.expression(other)?,
            };
            arguments.extend(quote!(#recorded,));
        }
        self.callees.insert(name.clone());
        Ok(quote_spanned!(call.span()=> #name::record(#g, #arguments)))
    }

    fn method(&mut self, call: &ExprMethodCall) -> Result<TokenStream> {
        let g = self.g.clone();
        let receiver = self.expression(&call.receiver)?;
        let name = &call.method;
        let width = call.turbofish.as_ref().and_then(|turbofish| turbofish.args.first());
        match (name.to_string().as_str(), call.args.first()) {
            ("to", None) => {
                let width = width.map(|width| quote!(::<_, #width>));
                return Ok(quote_spanned!(call.span()=> #g.to #width(#receiver)));
            }
            ("times", Some(factor)) => {
                let (width, factor) = (width.map(|width| quote!(::<#width, _, _>)), self.expression(factor)?);
                return Ok(quote_spanned!(call.span()=> #g.times #width(#receiver, #factor)));
            }
            _ => {}
        }
        if !METHODS.contains(&name.to_string().as_str()) {
            let known = METHODS.join(", ");
            let text = format!("the method `{name}` cannot become gates; there are: to, times, {known}");
            return Err(Error::new_spanned(name, text));
        }
        let arguments: Result<Vec<TokenStream>> = call.args.iter().map(|argument| self.expression(argument)).collect();
        let arguments = arguments?;
        Ok(quote_spanned!(call.span()=> #g.#name(#receiver, #(#arguments),*)))
    }
}

/// Returns whether `expression` is a literal, or a path to a constant (whose last name is in upper case).
fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) => true,
        Expr::Path(path) => {
            let last = path.path.segments.last().map(|segment| segment.ident.to_string());
            last.is_some_and(|name| name.chars().all(|letter| !letter.is_lowercase()))
        }
        _ => false,
    }
}

/// Returns nested pairs, `(a, (b, ()))`: a form of any number of values.
fn nest(items: &[TokenStream]) -> TokenStream {
    items.iter().rev().fold(quote!(()), |inner, item| quote!((#item, #inner)))
}

/// Returns the reason why an expression cannot be translated into gates.
fn refusal(expression: &Expr) -> &'static str {
    match expression {
        Expr::While(_) | Expr::ForLoop(_) | Expr::Loop(_) => {
            "loops cannot become gates: use the searches of maps, or a state that the next event continues from"
        }
        Expr::Match(_) => "`match` is not supported: use `if` and `else`",
        Expr::Let(_) => "patterns cannot become gates: compare, and use `if` and `else`",
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) | Expr::Try(_) => {
            "a program has no early exit: use `if` and `else`"
        }
        Expr::Cast(_) => "casts have no width: use .to::<N>()",
        Expr::Index(_) => "indexing needs a memory: use .test(offset) of a map",
        Expr::Reference(_) => "references cannot become gates, except as arguments of #[program] functions",
        Expr::Closure(_) => "closures cannot become gates: write a #[program] function",
        Expr::Macro(_) => "macros cannot become gates",
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => "numbers have no sign: subtract from zero",
        Expr::Array(_) | Expr::Repeat(_) | Expr::Tuple(_) | Expr::Struct(_) | Expr::Range(_) => {
            "only numbers, flags and fields of bundles can become gates"
        }
        _ => "this cannot become gates",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error message with which `body` is rejected, and its line.
    fn refused(body: &str) -> (String, usize) {
        let text = format!("fn f(i: &Incoming, s: &mut State) {{\n{body}\n}}");
        let parsed: ItemFn = syn::parse_str(&text).expect("the text is a function");
        let error = function(&parsed, 0).expect_err(body);
        (error.to_string(), error.span().start().line)
    }

    #[test]
    fn t19_what_cannot_become_gates_is_refused_at_its_line_with_the_reason() {
        for (body, reason) in [
            ("while s.a < 3 { s.a += 1; }", "loops cannot become gates"),
            ("for x in 0..3 { s.a += 1; }", "loops cannot become gates"),
            ("loop { }", "loops cannot become gates"),
            ("s.a = match s.b { _ => u(1) };", "`match` is not supported"),
            ("if let Some(x) = s.a { s.b = x; }", "patterns cannot become gates"),
            ("if s.a { return; }", "no early exit"),
            ("s.a = s.b as u8;", "casts have no width"),
            ("s.a = i.table[3];", "indexing needs a memory"),
            ("s.a = s.b * 1.5;", "floats cannot become gates"),
            ("s.a = std::cmp::max(s.a, s.b);", "calls cannot become gates"),
            ("s.a = s.b.pow(2);", "the method `pow` cannot become gates"),
            ("s.a = s.b << s.c;", "shifts are by constants"),
            ("s.a = s.b % 3;", "this operator cannot become gates"),
            ("let f = |x| x;", "closures cannot become gates"),
            ("println!(\"{}\", s.a);", "macros cannot become gates"),
            ("let x = 3;", "write u(...)"),
            ("s.a = 3;", "write u(3)"),
            ("s.a = u::<8>(s.b);", "use .to::<N>() for values"),
            ("s.a = half::<8>(s.b);", "calls cannot become gates"),
            ("let x;", "a wire always has a value"),
            ("let (a, b) = s.pair;", "declares one name"),
            ("s.a = -s.b;", "numbers have no sign"),
            ("s.a = u(s.b);", "use .to::<N>() for values"),
            ("s.a += 3_u8;", "no suffix"),
            ("s.a *= 3;", "this operator cannot become gates"),
            ("s.a = u('x');", "only numbers and flags"),
            ("fn inner() {}", "nothing but constants"),
            ("if s.a && bump(s) { s.b = u(1); }", "evaluate the right operand"),
            ("if s.a { helper({ s }); }", "an argument is a value"),
        ] {
            let (text, line) = refused(body);
            assert!(text.contains(reason), "{body}: {text}");
            assert_eq!(line, 2, "{body}: refused at another line");
        }
    }

    #[test]
    fn signatures_of_other_kinds_are_refused() {
        for (text, reason) in [
            ("fn f<const N: u32>(a: U<N>) {}", "not generic"),
            ("async fn f() {}", "not async"),
            ("fn f(&self) {}", "no `self`"),
            ("fn f((a, b): Pair) {}", "a single name"),
            ("fn f(a: (A, B)) {}", "a value of a program is a number"),
        ] {
            let parsed: ItemFn = syn::parse_str(text).expect("the text is a function");
            let error = function(&parsed, 0).expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn lines_are_counted_without_comments_and_blank_lines() {
        let text = "/// About f.\nfn f() {\n\n    // A comment.\n    let x = u(1);\n    if y {\n    }\n}\n";
        assert_eq!(crate::lines::count(&syn::parse_str(text).expect("a function")), 5);
    }
}
