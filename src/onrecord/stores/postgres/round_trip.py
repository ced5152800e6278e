"""One round trip: a transaction of prepared statements in one packet, sent through libpq directly.

The driver's own pipeline sends the same bytes and takes three times as long: as long as the server needs for an append.
Failures are the driver's: it raises its own errors, and an interrupted connection is not idle, which the pool checks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.waiting import Ready, Wait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from psycopg.abc import PQGen
    from psycopg.abc import Transformer as TransformerOf
    from psycopg.pq.abc import PGconn, PGresult

_PLACE = re.compile(rb"%\((\w+)\)s")
_ANSWERED = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.PIPELINE_SYNC)


class Statement(NamedTuple):
    """A statement as PostgreSQL takes it, with the names of its values in order."""

    text: bytes
    names: tuple[str, ...]
    anew: bool
    """Whether it is planned again for every set of values, and so is not prepared."""


def statement_of(text: bytes, *, anew: bool = False) -> Statement:
    """A statement of a `.sql` file: each name becomes a number."""
    names = tuple(dict.fromkeys(name.decode() for name in _PLACE.findall(text)))
    return Statement(_PLACE.sub(lambda found: b"$%d" % (names.index(found[1].decode()) + 1), text), names, anew)


class Prepared(dict[tuple[bytes, tuple[int, ...]], bytes]):
    """The statements prepared on one connection: text and types to name."""


def exchange(
    connection: psycopg.Connection[Any], prepared: Prepared, steps: Sequence[tuple[Statement, Mapping[str, Any]]]
) -> list[tuple[Any, ...]]:
    """Send statements as one transaction; the rows of the last one, once all is committed."""
    bound = [(statement, *_bound(connection, statement, values)) for statement, values in steps]
    pgconn, fresh = connection.pgconn, list[tuple[int, tuple[bytes, tuple[int, ...]], bytes]]()
    pgconn.enter_pipeline_mode()
    sent = 0
    for statement, values, transformer in bound:
        key = (statement.text, tuple(transformer.types or ()))
        if statement.anew:
            pgconn.send_query_params(statement.text, values, key[1], transformer.formats, pq.Format.BINARY)
            sent += 1
            continue
        name = prepared.get(key)
        if name is None:
            name = b"onrecord_%d" % (len(prepared) + len(fresh))
            fresh.append((sent, key, name))
            pgconn.send_prepare(name, statement.text, key[1])
            sent += 1
        pgconn.send_query_prepared(name, values, transformer.formats, result_format=pq.Format.BINARY)
        sent += 1
    pgconn.pipeline_sync()
    results = connection.wait(_answers(pgconn))
    pgconn.exit_pipeline_mode()
    # A statement stays prepared even if its transaction failed.
    prepared.update((key, name) for at, key, name in fresh if results[at].status == pq.ExecStatus.COMMAND_OK)
    if problem := _first_error(results):
        raise problem
    transformer = bound[-1][2]
    transformer.set_pgresult(results[sent - 1])
    return transformer.load_rows(0, results[sent - 1].ntuples, tuple)


def _bound(
    connection: psycopg.Connection[Any], statement: Statement, values: Mapping[str, Any]
) -> tuple[Sequence[Any], TransformerOf]:
    transformer: TransformerOf = Transformer(connection)
    chosen = [values[name] for name in statement.names]
    return transformer.dump_sequence(chosen, [PyFormat.AUTO] * len(chosen)), transformer


def _answers(pgconn: PGconn) -> PQGen[list[PGresult]]:
    """All results up to the one that ends the transaction."""
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    found: list[PGresult] = []
    silent = False
    while not found or found[-1].status != pq.ExecStatus.PIPELINE_SYNC:
        while pgconn.is_busy():
            yield Wait.R
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is not None:
            found.append(result)
        elif silent:
            # One None ends the results of a statement. After two in a row nothing more comes, and the end is missing.
            raise _first_error(found) or psycopg.OperationalError("the connection is lost")
        silent = result is None
    return found


def _first_error(found: list[PGresult]) -> psycopg.Error | None:
    return next((error_from_result(one) for one in found if one.status not in _ANSWERED), None)
