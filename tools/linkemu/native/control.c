/* The control sockets: who may talk, line by line, without ever making packets wait for a slow reader.
 *
 * Knows nothing of what the commands mean.
 */
#define _GNU_SOURCE
#include "linkemu.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

void control_init(struct control *control)
{
    memset(control, 0, sizeof *control);
    control->listener = control->owner = -1;
    for (unsigned i = 0; i < MAX_CLIENTS; i++)
        control->clients[i].fd = -1;
}

/* The path of a socket is limited to 108 bytes, a folder's is not: bind inside it. */
bool control_listen(struct control *control, const char *path, char *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!folder || !*name || strlen(name) >= sizeof address.sun_path || chdir(folder) < 0) {
        snprintf(error, ERROR_BYTES, "cannot use the folder of the control socket: %s", strerror(errno));
        free(folder);
        return false;
    }
    free(folder);
    strcpy(address.sun_path, name);
    struct stat old;
    if (lstat(name, &old) == 0 && S_ISSOCK(old.st_mode))
        unlink(name);           /* left over from one that was killed; anything else there is not ours to remove */
    control->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t previous = umask(0177);      /* for its owner alone, from the first moment */
    bool ok = control->listener >= 0 && bind(control->listener, (struct sockaddr *)&address, sizeof address) == 0
        && listen(control->listener, MAX_CLIENTS) == 0;
    umask(previous);
    if (!ok)
        snprintf(error, ERROR_BYTES, "cannot listen on the control socket: %s", strerror(errno));
    return ok;
}

bool control_adopt(struct control *control, int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return false;
    for (unsigned i = 0; i < MAX_CLIENTS; i++) {
        if (control->clients[i].fd < 0) {
            memset(&control->clients[i], 0, sizeof control->clients[i]);
            control->clients[i].fd = fd;
            return true;
        }
    }
    return false;
}

void control_accept(struct control *control)
{
    int fd = accept4(control->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    static const char busy[] = "{\"ok\":false,\"error\":\"too many clients; close one\"}\n";
    if (fd >= 0 && !control_adopt(control, fd)) {
        if (send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL) < 0)
            errno = 0;          /* it could not even be told; closing says the same */
        close(fd);
    }
}

static void drop(struct client *client)
{
    close(client->fd);
    free(client->reply.data);
    memset(client, 0, sizeof *client);
    client->fd = -1;
}

/* True once all of the reply is out. */
static bool flush(struct client *client)
{
    while (client->reply_sent < client->reply.used) {
        ssize_t sent = send(client->fd, client->reply.data + client->reply_sent,
                            client->reply.used - client->reply_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return false;
        if (sent <= 0) {
            client->closing = true;
            break;
        }
        client->reply_sent += (size_t)sent;
    }
    client->reply.used = client->reply_sent = 0;
    if (client->closing || client->reply.failed)
        drop(client);
    return true;
}

static void run_line(struct emulator *emu, struct client *client, size_t length)
{
    char *line = client->line;
    if (memchr(line, 0, length)) {
        text_add(&client->reply, "{\"ok\":false,\"error\":\"a command has no zero bytes\"}\n");
        return;
    }
    line[length] = 0;
    command_run(emu, line, &client->reply);
}

/* One command at a time: the next line is read once the reply to the last one is out. */
static void run_lines(struct emulator *emu, struct client *client)
{
    char *end;
    while (client->fd >= 0 && (end = memchr(client->line, '\n', client->line_used))) {
        size_t length = (size_t)(end - client->line);
        run_line(emu, client, length);
        client->line_used -= length + 1;
        memmove(client->line, end + 1, client->line_used);
        if (!flush(client))
            return;
    }
    if (client->fd >= 0 && client->line_used == LINE_BYTES) {
        text_add(&client->reply, "{\"ok\":false,\"error\":\"a command is longer than %d bytes\"}\n", LINE_BYTES);
        client->closing = true;
        flush(client);
    }
}

void control_close(struct control *control, const char *path)
{
    for (unsigned i = 0; i < MAX_CLIENTS; i++)
        if (control->clients[i].fd >= 0)
            drop(&control->clients[i]);
    if (control->listener < 0)
        return;
    const char *slash = strrchr(path, '/');
    unlink(slash ? slash + 1 : path);   /* control_listen() made its folder ours */
    close(control->listener);
}

void control_serve(struct emulator *emu, struct control *control, unsigned index, short events)
{
    struct client *client = &control->clients[index];
    if (client->reply.used) {
        if (events & (POLLERR | POLLHUP))
            drop(client);
        else if (flush(client))
            run_lines(emu, client);
        return;
    }
    ssize_t got = recv(client->fd, client->line + client->line_used, LINE_BYTES - client->line_used, 0);
    if (got > 0) {
        client->line_used += (size_t)got;
        run_lines(emu, client);
    } else if (got == 0 || errno != EAGAIN) {
        drop(client);
    }
}
