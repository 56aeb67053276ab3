#include "timestamps.h"

static int is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* `count` digits as a number, or -1. */
static int digits(const uint8_t *text, int count)
{
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (!is_digit(text[i]))
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

static int days_of_month(int year, int month)
{
    static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return DAYS[month - 1] + (month == 2 && leap);
}

/* Days since 1970-01-01, in the proleptic Gregorian calendar; years from 1 on. */
static int64_t day_number(int year, int month, int day)
{
    static const int BEFORE[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t past = year - 1;
    int after_leap_day = month > 2 && days_of_month(year, 2) == 29;
    return past * 365 + past / 4 - past / 100 + past / 400 + BEFORE[month - 1] + after_leap_day + day - 1 - 719162;
}

/* "HH:MM" as seconds, or -1. */
static int clock_s(const uint8_t *text)
{
    int hours = digits(text, 2), minutes = digits(text + 3, 2);
    return hours < 0 || hours > 23 || text[2] != ':' || minutes < 0 || minutes > 59 ? -1 : hours * 3600 + minutes * 60;
}

int rfc3339_us(const uint8_t *text, size_t size, int fraction_digits_max, int64_t *micros)
{
    if (size < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[16] != ':')
        return 0;
    int year = digits(text, 4), month = digits(text + 5, 2), day = digits(text + 8, 2);
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_of_month(year, month))
        return 0;
    int clock = clock_s(text + 11), seconds = digits(text + 17, 2);
    if (clock < 0 || seconds < 0 || seconds > 59)
        return 0;
    size_t at = 19;
    int64_t fraction = 0;
    if (text[at] == '.') {
        int count = 0;
        int64_t unit = 100000;
        for (at++; at < size && is_digit(text[at]); at++, count++) {
            fraction += (text[at] - '0') * unit;
            unit /= 10;
        }
        if (count < 1 || count > fraction_digits_max)
            return 0;
    }
    int64_t total = day_number(year, month, day) * 86400 + clock + seconds;
    if (size - at == 6 && (text[at] == '+' || text[at] == '-')) {
        int offset = clock_s(text + at + 1);
        if (offset < 0)
            return 0;
        total += text[at] == '-' ? offset : -offset;
    } else if (size - at != 1 || text[at] != 'Z') {
        return 0;
    }
    *micros = total * 1000000 + fraction;
    return 1;
}
