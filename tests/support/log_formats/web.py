"""Access and error logs of web servers, proxies, load balancers and content delivery networks."""

from __future__ import annotations

import json
from typing import Final

from tests.support.log_formats.model import FIRST, LogFormat, corpus, message, pick, when

_PATHS = ("/", "/api/items?page=2", "/login", "/static/app.js", "/missing")


def _request(n: int) -> str:
    return f"{pick(n, 'GET', 'POST', 'GET')} {pick(n, *_PATHS)} HTTP/1.1"


def _client(n: int) -> str:
    return f"203.0.113.{n % 200 + 7}"


def _status(n: int) -> int:
    return int(pick(n, "200", "404", "301", "500"))


def _bytes(n: int) -> int:
    return 512 + 13 * n


def _clf(n: int) -> str:
    return f'[{when(n):%d/%b/%Y:%H:%M:%S} +0000] "{_request(n)}" {_status(n)} {_bytes(n)}'


def _cloudflare(n: int) -> str:
    return json.dumps(
        {
            "ClientIP": _client(n),
            "ClientRequestHost": "shop.example.com",
            "EdgeResponseBytes": _bytes(n),
            "EdgeResponseStatus": _status(n),
            "EdgeStartTimestamp": f"{when(n):%Y-%m-%dT%H:%M:%SZ}",
            "EdgeEndTimestamp": f"{when(n + 1):%Y-%m-%dT%H:%M:%SZ}",
            "RayID": f"8f{n:014x}",
        },
        separators=(",", ":"),
    )


def _caddy(n: int) -> str:
    return json.dumps(
        {
            "level": "info",
            "ts": round(when(n).timestamp(), 6),
            "logger": "http.log.access",
            "msg": "handled request",
            "request": {"remote_ip": _client(n), "method": "GET", "uri": pick(n, *_PATHS)},
            "duration": 0.000123 + n / 1000,
            "size": _bytes(n),
            "status": _status(n),
        }
    )


def _alb(n: int) -> str:
    at = f"{when(n):%Y-%m-%dT%H:%M:%S.%fZ}"
    return (
        f"https {at} app/shop/50dc6c495c0c9188 {_client(n)}:28{n % 100:02} 10.0.0.1:80 0.001 0.0{n % 90 + 10} "
        f'0.000 {_status(n)} {_status(n)} 34 {_bytes(n)} "{pick(n, "GET", "POST")} https://www.example.com:443'
        f'{pick(n, *_PATHS)} HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 '
        f"arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/shop/73e2d6bc24d8a067 "
        f'"Root=1-58337262-36d228ad5d99923122bbe3{n:02x}" "www.example.com" "-" 0 {at} "forward" "-" "-" '
        f'"10.0.0.1:80" "{_status(n)}" "-" "-"'
    )


def _s3(n: int) -> str:
    return (
        f"79a59df900b949e5 photos [{when(n):%d/%b/%Y:%H:%M:%S} +0000] {_client(n)} - 3E57427F3EXAMPLE{n:02x} "
        f'REST.GET.{pick(n, "OBJECT", "VERSIONING", "BUCKET")} {pick(n, "a.jpg", "-", "b/c.png")} "{_request(n)}" '
        f'{_status(n)} {pick(n, "-", "NoSuchKey")} {_bytes(n)} {_bytes(n) * 2} {n % 90 + 5} {n % 7 + 1} "-" '
        f'"S3Console/0.4 (Linux)" - s9lzHYrFp76ZVxRcpX9+5cjAnEH2ROuN SigV4 ECDHE-RSA-AES128-GCM-SHA256 AuthHeader '
        "photos.s3.us-west-1.amazonaws.com TLSv1.2"
    )


def _cloudfront(n: int) -> str:
    return "\t".join(
        (
            f"{when(n):%Y-%m-%d}",
            f"{when(n):%H:%M:%S}",
            pick(n, "VIE50-C1", "FRA2-C2"),
            str(_bytes(n)),
            _client(n),
            "GET",
            "d111111abcdef8.cloudfront.net",
            pick(n, *_PATHS),
            str(_status(n)),
            "-",
            "Mozilla/5.0%20(X11)",
        )
    )


def _iis(n: int) -> str:
    return (
        f"{when(n):%Y-%m-%d %H:%M:%S} 10.0.0.4 GET {pick(n, '/', '/default.htm', '/a.aspx')} - 443 - {_client(n)} "
        f"Mozilla/5.0+(Windows+NT+10.0) {_status(n)} 0 0 {n % 300 + 15}"
    )


def _nginx_error(n: int) -> str:
    return (
        f"{when(n):%Y/%m/%d %H:%M:%S} [{pick(n, 'error', 'warn', 'notice')}] 1234#5678: "
        f"{pick(n, f'*{n + 3} ', '')}{message(n)}"
    )


def _apache_error(n: int) -> str:
    return (
        f"[{when(n):%a %b %d %H:%M:%S.%f %Y}] [{pick(n, 'core:error', 'mpm_event:notice', 'ssl:warn')}] "
        f"[pid 4711:tid 140{n:03}] {pick(n, '', f'[client {_client(n)}:4{n:03}] ')}AH00{n + 100}: {message(n)}"
    )


def _envoy(n: int) -> str:
    return (
        f'[{when(n):%Y-%m-%dT%H:%M:%S}.{when(n).microsecond // 1000:03}Z] "{_request(n)}" {_status(n)} '
        f"{pick(n, '-', 'UH', 'NR')} 0 {_bytes(n)} {n % 40 + 3} {pick(n, '2', '-', '9')} "
        f'"-" "curl/8.4.0" "5c3ad7a0-{n:04x}" "shop.example.com" "10.1.2.3:8080"'
    )


def _traefik(n: int) -> str:
    return f'{_client(n)} - - {_clf(n)} "-" "curl/8.4.0" {n + 1} "shop@docker" "http://172.18.0.3:80" {n % 40 + 2}ms'


def _squid(n: int) -> str:
    return (
        f"{when(n).timestamp():.3f} {n % 900 + 45:6} 10.0.0.{n % 90 + 1} {pick(n, 'TCP_MISS', 'TCP_HIT')}/{_status(n)} "
        f"{_bytes(n)} GET http://example.com{pick(n, *_PATHS)} - {pick(n, 'HIER_DIRECT/192.0.2.9', 'HIER_NONE/-')} text/html"
    )


def _haproxy(n: int) -> str:
    return (
        f"{when(n):%b %d %H:%M:%S} lb1 haproxy[4711]: {_client(n)}:33{n:03} [{when(n):%d/%b/%Y:%H:%M:%S.123}] "
        f'web~ shop/srv{n % 3} 0/0/1/{n % 50 + 2}/{n % 50 + 3} {_status(n)} {_bytes(n)} - - ---- 2/2/0/0/0 0/0 "{_request(n)}"'
    )


FORMATS: Final[list[LogFormat]] = corpus(
    nginx_access={
        "record": lambda n: f'{_client(n)} - {pick(n, "-", "ann")} {_clf(n)} "-" "curl/8.4.0"',
        "numbers": (200, 512),
    },
    apache_common={"record": lambda n: f"{_client(n)} - - {_clf(n)}", "numbers": (200, 512)},
    nginx_error={"record": _nginx_error, "level": "error", "numbers": (1234, 5678)},
    apache_error={
        "record": _apache_error,
        "time": FIRST,
        "level": "error",
        "program": "core",
        "numbers": (4711, 140000),
    },
    haproxy={
        "record": _haproxy,
        "payload": ("syslog", "pattern"),
        "host": "lb1",
        "program": "haproxy",
    },
    envoy={"record": _envoy, "time": FIRST, "numbers": (200, 0, 512, 3, 2)},
    traefik_access={"record": _traefik, "numbers": (200, 512, 1)},
    caddy={
        "record": _caddy,
        "payload": "json",
        "time": FIRST,
        "level": "info",
        "program": "http.log.access",
        "numbers": (0.000123, 512, 200),
    },
    squid={"record": _squid, "time": FIRST, "numbers": (45, 512)},
    iis_w3c={
        "header": (
            "#Software: Microsoft Internet Information Services 10.0",
            "#Version: 1.0",
            "#Date: 2026-11-21 10:00:00",
            "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip "
            "cs(User-Agent) sc-status sc-substatus sc-win32-status time-taken",
        ),
        "record": _iis,
        "numbers": (443, 200, 0, 0, 15),
        "unparsed": 5,
    },
    aws_alb={
        "record": _alb,
        "time": FIRST,
        "numbers": (0.001, 0.010, 0.0, 200, 200, 34, 512),
    },
    aws_s3={"record": _s3, "numbers": (200, 512, 1024, 5, 1)},
    aws_cloudfront={
        "header": (
            "#Version: 1.0",
            "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status "
            "cs(Referer) cs(User-Agent)",
        ),
        "record": _cloudfront,
        "numbers": (512, 200),
        "unparsed": 3,
    },
    cloudflare={"record": _cloudflare, "payload": "json", "numbers": (512, 200)},
)
