"""Formats of CI, ML servers, homes, games, devices and clouds, tried after the method was done."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, iso, message, ms, pick, when


def _day(n: int) -> str:
    return f"{when(n):%Y-%m-%d %H:%M:%S}"


FORMATS: Final[list[LogFormat]] = corpus(
    # Continuous integration
    github_runner={
        "record": lambda n: (
            f"[{_day(n)}Z {pick(n, 'INFO', 'WARN', 'ERR ')} {pick(n, 'Terminal', 'JobDispatcher', 'Listener')}] {message(n)}"
        ),
        "level": "INFO",
        "program": "Terminal",
    },
    sidekiq_json={
        "record": lambda n: json.dumps(
            {
                "severity": pick(n, "INFO", "WARN"),
                "time": f"{iso(n)}.{ms(n)}Z",
                "retry": 3,
                "queue": "default",
                "jid": f"{n:024x}",
                "correlation_id": f"c{n}",
                "job_status": pick(n, "start", "done"),
                "db_duration_s": 0.5 + n,
                "meta.caller_id": "PostReceive",
                "meta.depth": 4 + n % 3,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
        "numbers": (3, 0.5, 4),
    },
    teamcity={
        "record": lambda n: (
            f"[{_day(n)},{ms(n)}]   {pick(n, 'INFO', 'WARN', 'ERROR'):5} - {pick(n, 'jetbrains.buildServer.SERVER', 'jetbrains.buildServer.VCS', 'rver.impl.auth')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "jetbrains.buildServer.SERVER",
    },
    buildkite_agent={
        "record": lambda n: f"{_day(n)} {pick(n, 'INFO', 'WARN', 'NOTICE'):6} {message(n)}",
        "level": "INFO",
    },
    argocd={
        "record": lambda n: (
            f'time="{iso(n)}Z" level={pick(n, "info", "warning")} msg="{pick(n, "Reconciliation completed", "Refreshing app")}" application=argocd/shop dest-server="https://k" fields.level={n % 3 + 1} time_ms={123 + n}'
        ),
        "payload": "logfmt",
        "level": "info",
        "numbers": (1, 123),
    },
    concourse={
        "record": lambda n: json.dumps(
            {
                "timestamp": f"{iso(n)}.{when(n).microsecond:06}789Z",
                "level": pick(n, "info", "error"),
                "source": pick(n, "atc", "worker"),
                "message": f"atc.{pick(n, 'tick', 'collect')}",
                "data": {"session": f"1.{n}", "attempt": n % 4 + 2},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "numbers": (2,),
    },
    gradle={
        "record": lambda n: (
            f"{iso(n)}.{ms(n)}+0000 [{pick(n, 'INFO', 'DEBUG', 'LIFECYCLE')}] [org.gradle.{pick(n, 'internal.Build', 'api.Task')}] {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.gradle.internal.Build",
    },
    # ML servers
    triton={
        "record": lambda n: (
            f'{pick(n, "I", "W", "E")}{when(n):%m%d %H:%M:%S.%f} 4711 {pick(n, "server.cc:674", "model_lifecycle.cc:472")}] "{message(n)}"'
        ),
        "time": FIRST,
        "level": "I",
        "program": "server.cc:674",
        "numbers": (4711,),
    },
    torchserve={
        "record": lambda n: (
            f"{iso(n)},{ms(n)} [{pick(n, 'INFO', 'WARN', 'DEBUG'):5}] {pick(n, 'main', 'W-9000-resnet_1.0-stdout', f'epollEventLoopGroup-3-{n % 9}')} {pick(n, 'org.pytorch.serve.ModelServer', 'org.pytorch.serve.wlm.WorkerLifeCycle')} - {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "org.pytorch.serve.ModelServer",
    },
    ollama={
        "record": lambda n: (
            f'time={iso(n)}.{ms(n)}Z level={pick(n, "INFO", "WARN")} source={pick(n, "routes.go:1158", "sched.go:12")} msg="{pick(n, "Listening", "loaded runners")}" count={n + 3}'
        ),
        "payload": "logfmt",
        "time": FIRST,
        "level": "INFO",
        "numbers": (3,),
    },
    gin={
        "record": lambda n: (
            f'[GIN] {when(n):%Y/%m/%d - %H:%M:%S} | {pick(n, "200", "404", "500")} | {n % 90 + 1:5}.234567ms | 10.0.0.{n % 200:<3} | {pick(n, "POST", "GET"):7}  "/api/generate"'
        ),
        "numbers": (200,),
    },
    ray={
        "record": lambda n: (
            f"{_day(n)},{ms(n)}\t{pick(n, 'INFO', 'WARNING')} {pick(n, 'worker.py:1724', 'services.py:12')} -- {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "worker.py:1724",
    },
    uvicorn={
        "record": lambda n: (
            f'{pick(n, "INFO", "WARNING") + ":":9} 10.0.0.{n % 200}:{40000 + n} - "{pick(n, "GET", "POST")} /v1/items/{n} HTTP/1.1" {pick(n, "200 OK", "404 Not Found")}'
        ),
        "time": None,
        "level": "INFO",
        "numbers": (200,),
    },
    tgi_json={
        "record": lambda n: json.dumps(
            {
                "timestamp": f"{iso(n)}.{when(n).microsecond:06}Z",
                "level": pick(n, "INFO", "WARN"),
                "fields": {"message": message(n), "rank": n % 4 + 7},
                "target": pick(n, "text_generation_launcher", "router"),
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
        "numbers": (7,),
    },
    # Home automation
    openhab={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)} [{pick(n, 'INFO', 'WARN'):5}] [{pick(n, 'openhab.event.ItemStateChangedEvent', 'b.core.model.script.actions.Exec'):36}] - Item 'Temp' changed from {n} to {n + 1}"
        ),
        "time": FIRST,
        "level": "INFO",
        "program": "openhab.event.ItemStateChangedEvent",
    },
    zigbee2mqtt={
        "record": lambda n: (
            f"[{_day(n)}] {pick(n, 'info', 'warning', 'error')}: \t{pick(n, 'z2m', 'zh:ember', 'z2m:mqtt')}: {message(n)}"
        ),
        "level": "info",
        "program": "z2m",
    },
    iobroker={
        "record": lambda n: (
            f"{_day(n)}.{ms(n)}  - {pick(n, 'info', 'warn', 'error')}: {pick(n, 'hm-rpc.0', 'mqtt.1', 'javascript.0')} ({4711 + n % 3}) {message(n)}"
        ),
        "time": FIRST,
        "level": "info",
        "program": "hm-rpc.0",
        "numbers": (4711,),
    },
    fhem={
        "record": lambda n: (
            f"{when(n):%Y.%m.%d %H:%M:%S} {pick(n, '3', '1', '5')}: {pick(n, 'WEB', 'CUL', 'telnet')}: {message(n)}"
        ),
        "program": "WEB",
        "numbers": (3,),
    },
    esphome={
        "record": lambda n: (
            f"[{when(n):%H:%M:%S}][{pick(n, 'D', 'I', 'W')}][{pick(n, 'sensor:094', 'wifi:578', 'api:102')}]: {message(n)}"
        ),
        "level": "D",
    },
    homebridge={
        "record": lambda n: (
            f"[{when(n):%d/%m/%Y, %H:%M:%S}] [{pick(n, 'Hue', 'Homebridge UI', 'Shelly')}] {message(n)}"
        ),
        "program": "Hue",
    },
    # Games
    minecraft_forge={
        "record": lambda n: (
            f"[{when(n):%d%b%Y %H:%M:%S}.{ms(n)}] [{pick(n, 'Server thread', 'Worker-Main-2', 'main')}/{pick(n, 'INFO', 'WARN')}] [{pick(n, 'net.minecraft.server.dedicated.DedicatedServer', 'mixin')}/]: {message(n)}"
        ),
        "time": FIRST,
        "level": "INFO",
    },
    srcds={
        "record": lambda n: (
            f'L {when(n):%m/%d/%Y - %H:%M:%S}: "Ann{n}<{n}><STEAM_1:0:{n}><{pick(n, "CT", "TERRORIST")}>" {pick(n, "connected", "purchased")} "x"'
        ),
    },
    factorio={
        "record": lambda n: (
            f"{12.345 + 3.7 * n:8.3f} {pick(n, 'Info', 'Warning', 'Error')} {pick(n, 'ServerMultiplayerManager.cpp:780', 'Router.cpp:979')}: {message(n)}"
        ),
        "time": None,
        "level": "Info",
        "numbers": (12.345,),
    },
    unreal={
        "record": lambda n: (
            f"[{when(n):%Y.%m.%d-%H.%M.%S}:{ms(n)}][{n % 900:3}]{pick(n, 'LogNet', 'LogInit', 'LogStreaming')}: {pick(n, 'Display', 'Warning', 'Error')}: {message(n)}"
        ),
        "time": FIRST,
        "level": "Display",
        "program": "LogNet",
    },
    valheim={
        "record": lambda n: f"{when(n):%m/%d/%Y %H:%M:%S}: {message(n)}",
    },
    # Devices
    esp_idf={
        "record": lambda n: (
            f"{pick(n, 'I', 'W', 'E')} ({1234 + 37 * n}) {pick(n, 'wifi', 'mqtt_client', 'app')}: {message(n)}"
        ),
        "time": None,
        "level": "I",
        "program": "wifi",
        "numbers": (1234,),
    },
    meter_units={
        "record": lambda n: (
            f"{_day(n)};meter-{n % 3 + 1};{21.5 + n:.1f} °C;{48 + n % 9} %;{230 + n % 5} V"
        ),
        "host": "meter-1",
        "numbers": (21.5, 48, 230),
    },
    lora_gateway_csv={
        "record": lambda n: (
            f"{int(when(n).timestamp())} , gw-{n % 3 + 1} , -{70 + n % 30} , {5.25 + n % 9} , {pick(n, 'SF7BW125', 'SF12BW125')}"
        ),
        "header": ("time , gateway , rssi , snr , datarate",),
        "numbers": (-70, 5.25),
        "unparsed": 2,
    },
    # Cloud audit
    cloudtrail={
        "record": lambda n: json.dumps(
            {
                "eventVersion": "1.08",
                "userIdentity": {"type": "IAMUser", "userName": "ann"},
                "eventTime": f"{iso(n)}Z",
                "eventSource": "s3.amazonaws.com",
                "eventName": pick(n, "GetObject", "PutObject"),
                "awsRegion": "eu-central-1",
                "requestParameters": {"bucketName": "b"},
                "additionalEventData": {"bytesTransferredOut": 512 + n},
                "readOnly": True,
            }
        ),
        "payload": "json",
        "numbers": (512,),
    },
    gcp_audit={
        "record": lambda n: json.dumps(
            {
                "insertId": f"i{n}",
                "logName": "projects/p/logs/activity",
                "protoPayload": {"methodName": "v1.compute", "status": {"code": n % 7 + 2}},
                "resource": {"type": "gce_instance", "labels": {"zone": "z"}},
                "severity": pick(n, "NOTICE", "ERROR"),
                "timestamp": f"{iso(n)}.{when(n).microsecond:06}Z",
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "NOTICE",
        "numbers": (2,),
    },
    azure_activity={
        "record": lambda n: json.dumps(
            {
                "time": f"{iso(n)}.{when(n).microsecond:06}0Z",
                "resourceId": f"/SUBSCRIPTIONS/S/{n}",
                "operationName": "MICROSOFT.STORAGE/LISTKEYS/ACTION",
                "level": pick(n, "Information", "Warning"),
                "durationMs": str(12 + n),
                "properties": {"statusCode": pick(n, "OK", "Accepted"), "retries": n % 3 + 5},
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "Information",
        "numbers": (12, 5),
    },
    okta={
        "record": lambda n: json.dumps(
            {
                "actor": {"id": f"u{n}", "type": "User"},
                "client": {"ipAddress": "203.0.113.7"},
                "eventType": "user.session.start",
                "outcome": {"result": pick(n, "SUCCESS", "FAILURE")},
                "published": f"{iso(n)}.{ms(n)}Z",
                "severity": pick(n, "INFO", "WARN"),
                "uuid": f"{n:032x}",
            }
        ),
        "payload": "json",
        "time": FIRST,
        "level": "INFO",
    },
    zeek_json={
        "record": lambda n: json.dumps(
            {
                "ts": round(when(n).timestamp(), 6),
                "uid": f"C{n}",
                "id.orig_h": "10.0.0.1",
                "id.orig_p": 40000 + n,
                "id.resp_h": "203.0.113.7",
                "id.resp_p": 443,
                "proto": "tcp",
                "duration": 0.5 + n,
            }
        ),
        "payload": "json",
        "time": FIRST,
        "numbers": (40000, 443, 0.5),
    },
    wazuh={
        "record": lambda n: json.dumps(
            {
                "timestamp": f"{iso(n)}.{ms(n)}+0000",
                "rule": {"level": n % 5 + 3, "description": "x", "id": "5501"},
                "agent": {"id": "001", "name": "web-1"},
                "manager": {"name": "siem-1"},
                "full_log": message(n),
            }
        ),
        "payload": "json",
        "time": FIRST,
        "numbers": (3,),
    },
    ecs_nested={
        "record": lambda n: json.dumps(
            {
                "@timestamp": f"{iso(n)}.{ms(n)}Z",
                "log": {"level": pick(n, "info", "warn"), "logger": "shop.orders"},
                "host": {"name": "web-1"},
                "http": {"response": {"status_code": 200 + n % 4}},
                "message": message(n),
            }
        ),
        "payload": "json",
        "time": FIRST,
        "host": "web-1",
        "level": "info",
        "program": "shop.orders",
        "numbers": (200,),
    },
    german_levels={
        "record": lambda n: (
            f"{when(n):%d.%m.%Y %H:%M:%S} {pick(n, 'INFORMATION', 'WARNUNG', 'FEHLER')} [{pick(n, 'Auftrag', 'Lager')}] {message(n)}"
        ),
        "level": "INFORMATION",
        "program": "Auftrag",
    },
)
