package org.apache.iceberg.rest;

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's own REST catalog on loopback: port, then properties of the catalog as name=value. */
public class Peer {
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    for (int i = 1; i < arguments.length; i++) {
      String[] parts = arguments[i].split("=", 2);
      properties.put(parts[0], parts[1]);
    }
    Catalog catalog = CatalogUtil.buildIcebergCatalog("peer", properties, new Configuration());
    RESTCatalogServer.CatalogContext context =
        new RESTCatalogServer.CatalogContext(catalog, properties);
    ServletContextHandler handler = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    handler.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTServerCatalogAdapter(context))), "/*");
    int port = Integer.parseInt(arguments[0]);
    Server server = new Server(new InetSocketAddress("127.0.0.1", port));
    server.setHandler(handler);
    server.start();
    server.join();
  }
}
