// Tells the service manager that started the program how it is: systemd with Type=notify. Any thread.
#pragma once

#include <string_view>

namespace gapless {

// state: lines as sd_notify(3) has them, "READY=1" or "STOPPING=1". Nothing happens where no NOTIFY_SOCKET is
// named in the environment, or nobody listens on it.
void notify_service_manager(std::string_view state);

}  // namespace gapless
