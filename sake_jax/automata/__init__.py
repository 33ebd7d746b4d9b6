"""Finite automata: from an expression over characters to one over a model's tokens.

An expression (`expressions`, from a JSON Schema by `schema`) becomes an automaton that reads bytes
(`bytewise`), and that one becomes an automaton that reads tokens (`tokenwise`), in which tokens
with the same effect everywhere are one class. All of it is plain Python and NumPy, done once.
"""

from sake_jax.automata.bytewise import ByteAutomaton as ByteAutomaton
from sake_jax.automata.bytewise import byte_automaton as byte_automaton
from sake_jax.automata.schema import read_form as read_form
from sake_jax.automata.schema import schema_expression as schema_expression
from sake_jax.automata.tokens import token_bytes as token_bytes
from sake_jax.automata.tokenwise import TokenAutomaton as TokenAutomaton
from sake_jax.automata.tokenwise import token_automaton as token_automaton
