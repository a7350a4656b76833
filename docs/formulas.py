"""Converts formulas in docstrings to MathML, so that browsers draw them without a script.

A formula is an indented block of lines like these. A condition follows two or more spaces:

    v <- beta2 * v + (1 - beta2) * g^2
    w <- w - lr * m / sqrt(v)        use_nesterov=False
"""

import ast
import re
from html import escape

_LINE = re.compile(r"    +(?P<name>\w+'?) +(?P<sign><-|=) +(?P<value>\S.*?)(?: {2,}(?P<when>.*))?$")
_HEAD = re.compile(r"    (?P<head>\S.*):$")
_BLOCK = re.compile(r"(?m)(?:^    .*\n?)+")
_SIGNS = {ast.Add: "+", ast.Sub: "−", ast.Mult: "⋅"}
_GREEK = {"beta1": ("β", "1"), "beta2": ("β", "2"), "beta": ("β", ""), "rho": ("ρ", ""),
          "tau": ("τ", ""), "epsilon": ("ε", ""), "delta": ("δ", "")}  # fmt: skip


def rendered(text: str) -> str:
    """Returns the docstring with each block of formulas replaced by MathML."""
    return _BLOCK.sub(lambda match: _table(match[0]) or match[0], text)


def _table(block: str) -> str:
    rows = []
    for line in block.splitlines():
        found, head = _LINE.fullmatch(line), _HEAD.fullmatch(line)
        if head:
            rows.append(f'<mtr><mtd columnspan="4" class="head">{_text(head["head"])}</mtd></mtr>')
        elif found:
            value = _value(found["value"])
            if value is None:
                return ""
            sign = "←" if found["sign"] == "<-" else "="
            cells = [_name(found["name"]), f"<mo>{sign}</mo>", value, _text(found["when"] or "")]
            rows.append("<mtr>" + "".join(f"<mtd>{cell}</mtd>" for cell in cells) + "</mtr>")
        else:
            return ""
    table = f'<mtable displaystyle="true">{"".join(rows)}</mtable>'
    return f'<div class="formula"><math display="block">{table}</math></div>\n'


def _value(text: str) -> str | None:
    text = re.sub(r"\|(\w+)\|", r"abs(\1)", text).replace("^", "**").replace("'", "_prime")
    try:
        return _drawn(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return None


def _drawn(node: ast.expr, inside: int = 0) -> str:
    """Returns an expression as MathML; `inside` is the precedence of the enclosing operation."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return f"<mfrac>{_row(_drawn(node.left))}{_row(_drawn(node.right))}</mfrac>"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return f"<msup>{_row(_drawn(node.left, 4))}{_row(_drawn(node.right))}</msup>"
    if isinstance(node, ast.BinOp):
        binds = 2 if isinstance(node.op, ast.Mult) else 1
        left, right = _drawn(node.left, binds), _drawn(node.right, binds + 1)
        drawn = f"{left}<mo>{_SIGNS[type(node.op)]}</mo>{right}"
        return _row(f"<mo>(</mo>{drawn}<mo>)</mo>") if binds < inside else drawn
    if isinstance(node, ast.UnaryOp):
        drawn = f"<mo>−</mo>{_drawn(node.operand, 3)}"
        return _row(f"<mo>(</mo>{drawn}<mo>)</mo>") if inside > 3 else drawn
    if isinstance(node, ast.Call):
        given = "<mo>,</mo>".join(map(_drawn, node.args))
        function = ast.unparse(node.func)
        if function == "sqrt":
            return f"<msqrt>{given}</msqrt>"
        if function == "abs":
            return f"<mo>|</mo>{given}<mo>|</mo>"
        return f"<mi>{function}</mi><mo>(</mo>{given}<mo>)</mo>"
    if isinstance(node, ast.Constant):
        return f"<mn>{node.value}</mn>"
    return _name(ast.unparse(node).replace("_prime", "'"))


def _row(drawn: str) -> str:
    return f"<mrow>{drawn}</mrow>"


def _name(name: str) -> str:
    letter, index = _GREEK.get(name, (name.replace("'", "′"), ""))
    drawn = f"<mi>{escape(letter)}</mi>"
    return f"<msub>{drawn}<mn>{index}</mn></msub>" if index else drawn


def _text(text: str) -> str:
    return f"<mtext>{escape(text)}</mtext>" if text else ""
