"""The protocol: the SDK's server with our tools, resources, subscriptions and prompts, on stdio or on HTTP."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from onrecord import __version__, machine
from onrecord.errors import NotFound, OnrecordError
from onrecord.surfaces.mcp import prompts, resources
from onrecord.surfaces.mcp.calling import Calls, hint_of
from onrecord.surfaces.mcp.finding import Caller, Sessions
from onrecord.surfaces.mcp.schemas import INSTRUCTIONS, TOOLS
from onrecord.surfaces.mcp.watching import Watcher
from onrecord.vendors.mcp_servers import call_id_in, conversation_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from mcp.server.context import ServerRequestContext

SESSION_HEADER = "mcp-session-id"


class Service:
    """Our handlers for the SDK's server. On stdio the client started this process; on HTTP it did not."""

    def __init__(self, sessions: Sessions, *, local: bool) -> None:
        self.sessions = sessions
        self.calls = Calls(sessions)
        self.local = local
        self.nonce = machine.entropy(8).hex()
        self.watcher = Watcher(sessions)

    def server(self) -> Server[Any]:
        """The SDK's server."""
        return Server(
            "onrecord", version=__version__, title="onrecord", instructions=INSTRUCTIONS, lifespan=self._living,
            get_tool_input_schema=lambda name: TOOLS[name]["inputSchema"] if name in TOOLS else None,
            on_list_tools=self.list_tools, on_call_tool=self.call_tool, on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates, on_read_resource=self.read_resource,
            on_subscribe_resource=self.subscribe, on_unsubscribe_resource=self.unsubscribe,
            on_subscriptions_listen=self.watcher.listen, on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
        )  # fmt: skip

    @asynccontextmanager
    async def _living(self, _server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watcher.watch)
            try:
                yield {}
            finally:
                tasks.cancel_scope.cancel()

    # Who calls

    def caller(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        """The caller of a request."""
        meta: Mapping[str, Any] = dict(ctx.meta or {})
        params = ctx.session.client_params
        vendor, vendor_id = conversation_in(meta, os.environ if self.local else {})
        return Caller(params.client_info.name if params else "", vendor, vendor_id, self.local)

    def connection(self, ctx: ServerRequestContext[Any, Any]) -> str:
        """What identifies the connection of a request; empty where the protocol has none."""
        if self.local:
            return self.nonce
        headers = getattr(ctx.request, "headers", None)
        return str(headers.get(SESSION_HEADER, "")) if headers is not None else ""

    # Tools

    async def list_tools(self, _ctx: Any, _params: Any) -> types.ListToolsResult:
        """The six tools."""
        return types.ListToolsResult.model_validate({"tools": [{"name": name, **one} for name, one in TOOLS.items()]})

    async def call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Do a tool call in a thread; the answer is a result in any case."""
        connection = self.connection(ctx)
        own = call_id_in(dict(ctx.meta or {}))
        request = own or (str(ctx.request_id) if ctx.request_id is not None else "")
        call = partial(
            self.calls.call, params.name, params.arguments, self.caller(ctx), connection=connection, request=request
        )
        answer = await anyio.to_thread.run_sync(call)
        said: list[Any] = [types.TextContent(type="text", text=answer.text)]
        if answer.error is not None:
            return types.CallToolResult(content=said, is_error=True, _meta={"onrecord/error": answer.error})
        return types.CallToolResult(content=said, structured_content=answer.data)

    # Resources

    async def list_resources(self, ctx: ServerRequestContext[Any, Any], _params: Any) -> types.ListResourcesResult:
        """The sessions, and the parts of the caller's own."""
        found = await anyio.to_thread.run_sync(resources.listed, self.sessions, self._chosen(ctx))
        return types.ListResourcesResult.model_validate({"resources": found})

    async def list_templates(self, _ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
        """The forms of the addresses."""
        return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": resources.templates()})

    async def read_resource(
        self, ctx: ServerRequestContext[Any, Any], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """One resource."""
        uri = str(params.uri)
        text = await _asked(partial(resources.contents, self.sessions, self._chosen(ctx), uri), uri)
        content = types.TextResourceContents(uri=uri, mime_type=resources.MIME, text=text)
        return types.ReadResourceResult(contents=[content])

    async def subscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        """Notify this client when a resource changes."""
        uri = str(params.uri)
        await _asked(partial(resources.parse, uri), uri)
        self.watcher.add(uri, ctx.session)
        return types.EmptyResult()

    async def unsubscribe(
        self, ctx: ServerRequestContext[Any, Any], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        """No longer notify this client."""
        self.watcher.remove(str(params.uri), ctx.session)
        return types.EmptyResult()

    # Prompts

    async def list_prompts(self, _ctx: Any, _params: Any) -> types.ListPromptsResult:
        """The three prompts."""
        return types.ListPromptsResult.model_validate({"prompts": prompts.listed()})

    async def get_prompt(
        self, ctx: ServerRequestContext[Any, Any], params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """One prompt, with the brief."""
        wanted = str((params.arguments or {}).get("session") or "")
        text = await _asked(partial(prompts.text_of, self.sessions, self._chosen(ctx), params.name, wanted))
        message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(description=prompts.PROMPTS.get(params.name), messages=[message])

    def _chosen(self, ctx: ServerRequestContext[Any, Any]) -> Caller:
        return self.caller(ctx)._replace(chosen=self.calls.chosen.get(self.connection(ctx), ""))


async def _asked(question: Callable[[], Any], uri: str = "") -> Any:
    """Answer a request that is not a tool call: its failure is an error of the protocol, with our code and hint."""
    try:
        return await anyio.to_thread.run_sync(question)
    except OnrecordError as problem:
        code = types.INVALID_PARAMS if isinstance(problem, NotFound) else types.INTERNAL_ERROR
        about = {"code": problem.code, "hint": hint_of(problem)} | ({"uri": uri} if uri else {})
        raise MCPError(code, problem.message, about) from None


async def on_stdio(service: Service) -> None:
    """Serve the client that started this process, until it closes its end."""
    from mcp.server.stdio import stdio_server

    server = service.server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
