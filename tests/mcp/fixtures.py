"""Our server with what the conformance suite asks for by name: `python -m tests.mcp.fixtures` serves it without a token.

The suite calls tools, resources and prompts of fixed names. They are here and nowhere in the product; every handler
falls back to our own, so the protocol, the transports, the subscriptions and the errors under test are ours.
"""

import base64
import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server

from onrecord.connection import connect
from onrecord.machine.http_server import listen
from onrecord.surfaces.mcp.finding import Sessions
from onrecord.surfaces.mcp.http import PATH
from onrecord.surfaces.mcp.serving import Service

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
SOUND = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt ").decode()
ANY: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
                   "contactMethod": {"type": "string", "enum": ["phone", "email"]}, "phone": {"type": "string"},
                   "email": {"type": "string"}},
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]}, "else": {"required": ["email"]}, "additionalProperties": False,
}  # fmt: skip
TEXT = types.TextContent(type="text", text="This is a simple text response for testing.")
IMAGE = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
TOOLS: dict[str, list[Any]] = {
    "test_simple_text": [TEXT],
    "test_image_content": [IMAGE],
    "test_audio_content": [types.AudioContent(type="audio", data=SOUND, mime_type="audio/wav")],
    "test_embedded_resource": [types.EmbeddedResource(type="resource", resource=types.TextResourceContents(
        uri="test://embedded-resource", mime_type="text/plain", text="This is an embedded resource content."))],
    "test_multiple_content_types": [TEXT, IMAGE, types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(
            uri="test://mixed-content-resource", mime_type="application/json", text='{"test":"data"}'))],
    "test_error_handling": [types.TextContent(type="text", text="This tool intentionally returns an error for testing")],
    "test_tool_with_progress": [TEXT],
    "json_schema_2020_12_tool": [TEXT],
}  # fmt: skip
RESOURCES: dict[str, Any] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PIXEL),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched resource content"
    ),
}
TEMPLATE = "test://template/{id}/data"
PROMPTS = {
    "test_simple_prompt": (), "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",), "test_prompt_with_image": (),
}  # fmt: skip


class Fixtures(Service):
    """Our service, and the suite's own names."""

    def server(self) -> Server[Any]:
        made = super().server()
        made.add_request_handler("completion/complete", types.CompleteRequestParams, self.complete)
        return made

    async def complete(self, _ctx: Any, _params: Any) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        ours = await super().list_tools(ctx, params)
        for name in TOOLS:
            schema = SCHEMA_2020_12 if name == "json_schema_2020_12_tool" else ANY
            ours.tools.append(
                types.Tool(name=name, description=f"{name} of the conformance suite", input_schema=schema)
            )
        return ours

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in TOOLS:
            return await super().call_tool(ctx, params)
        if params.name == "test_tool_with_progress":
            for done in (0, 50, 100):
                await ctx.session.report_progress(done, 100)
                await anyio.sleep(0.05)
        return types.CallToolResult(content=TOOLS[params.name], is_error=params.name == "test_error_handling")

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        ours = await super().list_resources(ctx, params)
        for uri, content in RESOURCES.items():
            ours.resources.append(types.Resource(uri=uri, name=uri.rpartition("/")[2], mime_type=content.mime_type))
        return ours

    async def list_templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        ours = await super().list_templates(ctx, params)
        ours.resource_templates.append(types.ResourceTemplate(uri_template=TEMPLATE, name="template"))
        return ours

    async def read_resource(self, ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        if uri in RESOURCES:
            return types.ReadResourceResult(contents=[RESOURCES[uri]])
        if uri.startswith("test://template/"):
            id_ = uri.split("/")[3]
            text = f'{{"id":"{id_}","templateTest":true,"data":"Data for ID: {id_}"}}'
            content = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
            return types.ReadResourceResult(contents=[content])
        return await super().read_resource(ctx, params)

    async def subscribe(self, ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
        return types.EmptyResult() if str(params.uri) in RESOURCES else await super().subscribe(ctx, params)

    async def list_prompts(self, ctx: Any, params: Any) -> types.ListPromptsResult:
        ours = await super().list_prompts(ctx, params)
        for name, wanted in PROMPTS.items():
            arguments = [types.PromptArgument(name=one, description=one, required=True) for one in wanted]
            ours.prompts.append(types.Prompt(name=name, description=f"{name} of the suite", arguments=arguments))
        return ours

    async def get_prompt(self, ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in PROMPTS:
            return await super().get_prompt(ctx, params)
        given = params.arguments or {}
        said: list[Any] = [types.TextContent(type="text", text="This is a simple prompt for testing.")]
        if params.name == "test_prompt_with_arguments":
            text = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            said = [types.TextContent(type="text", text=text)]
        if params.name == "test_prompt_with_image":
            said = [IMAGE, TEXT]
        if params.name == "test_prompt_with_embedded_resource":
            content = types.TextResourceContents(
                uri=str(given.get("resourceUri")), mime_type="text/plain", text="Embedded resource content for testing."
            )
            said = [types.EmbeddedResource(type="resource", resource=content), TEXT]
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=one) for one in said])


def main() -> None:
    """Serve on a free port of loopback; the first line says where."""
    with connect() as records:
        records.create("conformance", agent="suite", objective="Speak the protocol as it is written")
    listener = listen("127.0.0.1", 0)
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}\n")
    sys.stdout.flush()
    app = Fixtures(Sessions(), local=False).server().streamable_http_app(streamable_http_path=PATH)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1)).run(
        sockets=[listener]
    )


if __name__ == "__main__":
    main()
